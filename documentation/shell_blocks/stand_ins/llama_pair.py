"""Two real llama.cpp servers of one tiny model with random weights: 8001 drafts and verifies, 8002 is plain."""

from __future__ import annotations

import contextlib
import signal
import tempfile
from pathlib import Path

from adaptive_gamma.cli.demo.engines import first_draft
from adaptive_gamma.cli.demo.llama_server import LlamaServer
from adaptive_gamma.cli.demo.tiny_model import DEMO_SHAPE, write_tiny_models


def main() -> None:
    stops = {signal.SIGTERM, signal.SIGINT}
    signal.pthread_sigmask(signal.SIG_BLOCK, stops)
    with contextlib.ExitStack() as stack:
        models = write_tiny_models(Path(stack.enter_context(tempfile.TemporaryDirectory())), DEMO_SHAPE)
        drafting = LlamaServer(models.target, draft=models.draft, gamma=4, slots=8, port=8001)
        plain = LlamaServer(models.target, slots=8, port=8002)
        for server in (drafting, plain):
            stack.enter_context(server)
        first_draft(drafting.url)
        print("ready", flush=True)
        signal.sigwait(stops)


if __name__ == "__main__":
    main()
