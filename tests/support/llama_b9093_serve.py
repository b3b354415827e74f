"""llama.cpp b9093 as a server: run by an interpreter that has ``xllamacpp==2026.5.9093`` and nothing of ours.

Takes the options of ``adaptive_gamma.cli.demo.llama_server`` that this build has a use for.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import signal


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("--model", "--draft", "--alias"):
        parser.add_argument(name)
    for name in ("--port", "--gamma", "--slots", "--slot-tokens", "--threads", "--parent"):
        parser.add_argument(name, type=int)
    options = parser.parse_args()
    ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != options.parent:
        os._exit(1)
    stops = {signal.SIGTERM, signal.SIGINT}
    signal.pthread_sigmask(signal.SIG_BLOCK, stops)
    announce = os.dup(1)
    os.dup2(2, 1)

    import xllamacpp

    parameters = xllamacpp.CommonParams()
    parameters.hostname = "127.0.0.1"
    parameters.port = options.port
    parameters.model.path = options.model
    parameters.model_alias = {options.alias}
    parameters.n_parallel = options.slots
    parameters.n_ctx = options.slots * options.slot_tokens
    parameters.endpoint_metrics = parameters.endpoint_slots = True
    parameters.warmup = parameters.fit_params = False
    parameters.cache_ram_mib = 0
    draft = parameters.speculative.draft
    draft.mparams.path = options.draft
    draft.n_max, draft.n_min, draft.p_min = options.gamma, 0, 0.0
    for threads in (
        parameters.cpuparams,
        parameters.cpuparams_batch,
        draft.cpuparams,
        draft.cpuparams_batch,
    ):
        threads.n_threads = options.threads
    server = xllamacpp.Server(parameters)
    os.write(announce, f"listening {server.listening_address}\n".encode())
    os.close(announce)
    signal.sigwait(stops)
    os._exit(0)


if __name__ == "__main__":
    main()
