"""``python -m benchmarks.bare_picker``: ext_proc on grpc.aio and nothing else: each request goes to one endpoint.

It reads just enough of a message to know what has to be answered, and answers with bytes made beforehand. What a picker
costs beyond this is its own; what this costs is grpc.aio's.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import uvloop

from adaptive_gamma.envoy.picker.answers import (
    CONTINUE_HEADERS,
    Pick,
    echoed_body,
    picked_at_body,
    picked_at_headers,
)
from adaptive_gamma.envoy.picker.wire import EXT_PROC_SERVICE, BodyMode, ProcessingRequest


async def _serve(endpoint: str) -> None:
    pick = Pick(endpoint, "one", "unsure", "only_replica", "plain", 0)
    at_headers, at_body = picked_at_headers(pick, (), None), picked_at_body(pick, (), None)

    async def process(_: AsyncIterator[bytes], context: Any) -> bytes:
        read, write = context.read, context.write
        message = ProcessingRequest.FromString(await read())
        if message.request_headers.end_of_stream:
            return at_headers
        if message.protocol_config.request_body_mode == BodyMode.BUFFERED:
            await write(CONTINUE_HEADERS)
            await read()
            return at_body
        parts = []
        while True:
            body = ProcessingRequest.FromString(await read()).request_body
            parts.append(body.body)
            if body.end_of_stream:
                break
        await write(at_headers)
        *pieces, last = echoed_body("request_body", b"".join(parts), end_of_stream=True)
        for piece in pieces:
            await write(piece)
        return last

    server = grpc.aio.server(options=[("grpc.so_reuseport", 0), ("grpc.max_concurrent_streams", 100_000)])
    handler = {"Process": grpc.stream_unary_rpc_method_handler(process)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(EXT_PROC_SERVICE, handler),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(f"picks on port {port}", flush=True)
    await server.wait_for_termination()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bare_picker", description=__doc__)
    parser.add_argument("endpoint", help="ip:port that every request goes to")
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(parser.parse_args().endpoint))


if __name__ == "__main__":
    main()
