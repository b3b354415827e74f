"""The pages of the admin port that are made row by row."""

from __future__ import annotations

import json

from tests.support.gated_engine import GatedEngine
from tests.support.raw_client import post
from tests.support.running_proxy import running_proxy


async def test_status_is_one_json_object_in_utf8() -> None:
    async with GatedEngine(models=["m\u00fcller", "\U0001f600"]) as engine, running_proxy([engine, engine]) as proxy:
        fleet = proxy.plane.fleet
        await fleet.check_health_once()
        await fleet.scrape_once()
        answer = await proxy.admin("/status")
        page = json.loads(answer.body)
        assert answer.one("content-type") == "application/json"
        assert set(page) == {
            "version",
            "mode",
            "draining",
            "policy",
            "observations",
            "telling",
            "discovery",
            "replicas",
        }
        for row in page["replicas"]:
            row["scrape_age_s"] = None
        rows = fleet.status()
        for row in rows:
            row["scrape_age_s"] = None
        assert page["replicas"] == json.loads(json.dumps(rows))
        assert "m\u00fcller".encode() in answer.body


async def test_decisions_newest_first_and_as_many_as_asked_for() -> None:
    async with GatedEngine() as engine, running_proxy([engine]) as proxy:
        assert json.loads((await proxy.admin("/decisions")).body) == {"decisions": []}
        for number in range(5):
            await proxy.ask(post(headers=(("x-request-id", f"id-{number}"),)))
        page = json.loads((await proxy.admin("/decisions?limit=3")).body)
        assert [row["request_id"] for row in page["decisions"]] == ["id-4", "id-3", "id-2"]
        assert page["decisions"] == json.loads(json.dumps(proxy.plane.decisions.newest(3)))
        assert (await proxy.admin("/decisions?limit=0")).status == 422
