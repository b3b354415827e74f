"""Random policies of every kind, for property tests."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from adaptive_gamma.policy import Policy, rebuild_policy

RATES = st.floats(0.0, 1.0)
FAMILIES = ("eagle3", "eagle1", "mtp", "draft-model", "dflash", "ngram")


@st.composite
def random_policies(draw: st.DrawFn) -> Policy:
    linear = {
        "kind": "linear",
        "fixed_seconds": draw(st.floats(1e-3, 0.1)),
        "seconds_per_token": draw(st.floats(0.0, 5e-4)),
        "seconds_per_kv_token": draw(st.floats(0.0, 1e-7)),
    }
    roofline = {
        "kind": "roofline",
        "combine": draw(st.sampled_from(["max", 1.0, 2.0, 3.0])),
        "memory_efficiency": draw(st.floats(0.3, 1.0)),
        "compute_efficiency": draw(st.floats(0.3, 1.0)),
        "capture_sizes": draw(st.none() | st.just([1, 2, 4, 8, 16, 32, 64, 128, 256])),
    }
    basic = draw(st.sampled_from([linear, roofline]))
    family = draw(st.sampled_from(FAMILIES))
    if family == "dflash":
        drafter: dict[str, Any] = {
            "kind": "parallel",
            "weight_fraction": 0.2,
            "compute_fraction": 0.2,
            "kv_fraction": 0.1,
        }
    elif family == "ngram":
        drafter = {"kind": "ngram"}
    else:
        drafter = {"kind": "autoregressive", "pass_fraction": draw(st.floats(0.0, 0.5))}
    names = ["structured", "chat", "unsure"][: draw(st.integers(1, 3))]
    least = draw(st.sampled_from([0, 1, 1, 1, 2, 3]))
    return rebuild_policy(
        {
            "schema": "adaptive-gamma/policy/v1",
            "name": "random",
            "inputs": {
                "hardware": {"name": "x", "bandwidth_bytes_per_s": 3.35e12, "compute_flops_per_s": 989e12},
                "model": {
                    "name": "m",
                    "weight_bytes": draw(st.sampled_from([16e9, 54e9, 140e9])),
                    "flops_per_token": draw(st.sampled_from([6e9, 16e9, 140e9])),
                    "kv_bytes_per_token": 131072,
                },
                "step_time": draw(st.sampled_from([basic, {"kind": "plain_pool", "plain": basic}])),
                "drafter": {**drafter, "family": family},
                "classes": {
                    name: {
                        "reading": "unconditional",
                        "two_parameter": {"first": draw(RATES), "plateau": draw(RATES)},
                    }
                    for name in names
                },
                "default_class": names[-1],
                "limits": {
                    "max_gamma": draw(st.integers(max(least, 1), 8)),
                    "min_gamma": least,
                    "max_batch": draw(st.integers(1, 160)),
                    "context_buckets": draw(st.sampled_from([[2048], [500, 8000]])),
                    "capture_limit_tokens": draw(st.none() | st.integers(1, 600)),
                    "zero_gamma_tax": draw(st.sampled_from([0.0, 0.0656, [[2, 0.0656], [189, 0.2158]]])),
                },
            },
        },
        "random",
    )
