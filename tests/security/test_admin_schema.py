"""The admin port answers as its OpenAPI document says, whatever it is asked."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.fuzz.admin import PATHS, check_admin_api
from tests.support.gated_engine import GatedEngine
from tests.support.raw_client import post
from tests.support.served import serve


async def test_every_answer_is_one_that_the_document_describes(tmp_path: Path) -> None:
    async with GatedEngine() as engine, serve(tmp_path, [engine], mode="observe") as served:
        await served.ready()
        async with served.client() as client:
            assert (await client.ask(post())).status == 200
        url = f"http://127.0.0.1:{served.admin}"
        tried = await asyncio.to_thread(check_admin_api, url, 6, derandomize=True)
        assert set(PATHS) <= set(tried)
        assert not [line for line in served.lines if "Traceback" in line or " ERROR " in line]
