"""Whatever happens between the API server and here, in the end what is known is what the cluster has."""

from __future__ import annotations

import asyncio
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from adaptive_gamma.config import DiscoverySettings, ServiceSettings
from adaptive_gamma.discovery import Discovery, merged
from adaptive_gamma.discovery.slices import SliceStore
from tests.discovery.fake_api import FakeApi, endpoint, fake_api, slice_of
from tests.discovery.held_pace import HeldPace
from tests.support.gated_engine import until

_ENDPOINTS = st.builds(
    endpoint,
    st.sampled_from(["10.0.0.1", "10.0.0.2", "10.0.0.3", None]),
    st.sampled_from(["p1", "p2", None]),
    ready=st.booleans(),
)
_EVENTS = st.one_of(
    st.tuples(st.just("put"), st.sampled_from("abc"), st.lists(_ENDPOINTS, max_size=3)),
    st.tuples(st.just("delete"), st.sampled_from("abc")),
    st.tuples(st.sampled_from(["drop", "end", "bookmark", "compact", "garbage", "refuse", "expire", "breathe"])),
)


async def _happens(api: FakeApi, event: tuple[Any, ...]) -> None:
    match event:
        case ("put", name, endpoints):
            api.put(slice_of(name, *endpoints))
        case ("delete", name):
            if name in api.slices:
                api.delete(name)
        case ("drop",):
            api.drop_watches()
        case ("end",):
            api.end_watches()
        case ("bookmark",):
            api.bookmark()
        case ("compact",):
            api.forget_history()
        case ("garbage",):
            api.say(b'{"type": "ADDED", "object": \n')
        case ("refuse",):
            api.refusals["list"].append((500, ""))
            api.refusals["watch"].append((503, ""))
            api.drop_watches()
        case ("expire",):
            api.say({"type": "ERROR", "object": {"kind": "Status", "code": 410}})
        case ("breathe",):
            for _ in range(20):
                await asyncio.sleep(0)


async def _ends_alike(events: list[tuple[Any, ...]]) -> None:
    async with fake_api() as api:
        section = {
            "kind": "kubernetes",
            "services": [{"name": "spec", "service": "spec"}],
            "kubernetes": {"api_url": api.url},
        }
        discovery = Discovery(DiscoverySettings.model_validate(section), environment={}, pace=HeldPace(hurried=True))
        await discovery.start(5)
        try:
            for event in events:
                await _happens(api, event)
            fresh = SliceStore()
            fresh.replace(api.slices.values())
            wanted = merged([], [(ServiceSettings(name="spec", service="spec"), fresh.found(None))])
            await until(lambda: discovery.replicas([]) == wanted, f"{wanted} after {events}")
        finally:
            await discovery.stop()


@settings(max_examples=60, deadline=None)
@given(events=st.lists(_EVENTS, max_size=25))
def test_whatever_happens_the_list_is_right_in_the_end(events: list[tuple[Any, ...]]) -> None:
    asyncio.run(_ends_alike(events))
