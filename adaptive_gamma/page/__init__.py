"""The live page and the self-contained reports: their files, how they are sent, and how reports are put together.

Nothing here knows of replicas or policies: what is shown comes in as JSON, from whoever serves or writes it.
"""

from adaptive_gamma.page.assets import ASSET_NAMES, PAGE_HEADERS, Asset, asset, live_page
from adaptive_gamma.page.event_stream import Connections, EventStream
from adaptive_gamma.page.feed import Feed, Listener
from adaptive_gamma.page.report import json_block, report_page

__all__ = [
    "ASSET_NAMES",
    "PAGE_HEADERS",
    "Asset",
    "Connections",
    "EventStream",
    "Feed",
    "Listener",
    "asset",
    "json_block",
    "live_page",
    "report_page",
]
