"""The admin port answers as its OpenAPI document says, whatever it is asked."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from tests.fuzz.admin import PATHS
from tests.support.gated_engine import GatedEngine
from tests.support.raw_client import post
from tests.support.served import serve

ROOT = Path(__file__).resolve().parents[2]


async def test_every_answer_is_one_that_the_document_describes(tmp_path: Path) -> None:
    async with GatedEngine() as engine, serve(tmp_path, [engine], mode="observe") as served:
        await served.ready()
        async with served.client() as client:
            assert (await client.ask(post())).status == 200
        url = f"http://127.0.0.1:{served.admin}"
        command = (sys.executable, "-m", "tests.fuzz.admin", url, "5")
        checking = await asyncio.create_subprocess_exec(
            *command, cwd=ROOT, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
        )
        said, problem = await checking.communicate()
        assert checking.returncode == 0, problem.decode()[-3000:]
        assert set(PATHS) <= set(said.decode().split())
        assert not [line for line in served.lines if "Traceback" in line or " ERROR " in line]
