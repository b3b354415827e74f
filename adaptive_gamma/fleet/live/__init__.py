"""The fleet as the live page shows it: rows, curves, the policy's map and what is gained, as plain data."""

from adaptive_gamma.fleet.live.curves import curves_page, sampled_batches
from adaptive_gamma.fleet.live.gains import gains_row, observed_row
from adaptive_gamma.fleet.live.policy_map import policy_page
from adaptive_gamma.fleet.live.rows import live_row, setting_key

__all__ = [
    "curves_page",
    "gains_row",
    "live_row",
    "observed_row",
    "policy_page",
    "sampled_batches",
    "setting_key",
]
