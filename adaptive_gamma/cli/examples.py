"""What a help page shows beside the options: commands as they are typed. A test reads each of them."""

from __future__ import annotations

import inspect
from types import MappingProxyType

import click

__all__ = ["EXAMPLES", "with_examples"]

_TITLE = "Examples:"

EXAMPLES = MappingProxyType(
    {
        "demo": ("adaptive-gamma demo", "adaptive-gamma demo --simulated --seconds 4"),
        "doctor": (
            "adaptive-gamma doctor --log spec.log --plain-log plain.log",
            "adaptive-gamma doctor --url http://127.0.0.1:8001 --plain-url http://127.0.0.1:8002 --json",
        ),
        "dry-run": (
            "adaptive-gamma dry-run --policy h200-llama3-70b-fp8 --trace synthetic:conversation=chat --limit 2000",
            "adaptive-gamma dry-run --policy p.yaml --fleet fleet.yaml --trace azure.csv=code --only adaptive,oracle",
        ),
        "envoy": (
            "adaptive-gamma envoy --config adaptive-gamma.yaml --out envoy/ --once --validate",
            "adaptive-gamma envoy --config adaptive-gamma.yaml --out envoy/",
        ),
        "parity": (
            "adaptive-gamma parity --url plain=http://127.0.0.1:8002 --url spec=http://127.0.0.1:8001",
            "adaptive-gamma parity --url http://127.0.0.1:8002 --url http://127.0.0.1:8001 --prompts mine.jsonl --json",
        ),
        "picker": (
            "adaptive-gamma picker --config adaptive-gamma.yaml --listen 127.0.0.1:9002 --tls off",
            "adaptive-gamma picker --config adaptive-gamma.yaml --tls files --cert tls.crt --key tls.key",
        ),
        "plan": (
            "adaptive-gamma plan --policy h200-llama3-70b-fp8 --trace synthetic:conversation=chat --limit 500 --gpus 3",
            "adaptive-gamma plan --policy p.yaml --trace azure.csv=chat --gpus 8 --slo-tpot-ms 60 -o fleet.yaml",
        ),
        "policy build": (
            "adaptive-gamma policy build --gpu H100 --model llama-3.1-8b --drafter eagle3 -o policy.yaml",
            "adaptive-gamma policy build --from results/ --drafter eagle3 --slo-tpot-ms 40 -o policy.yaml",
        ),
        "policy check": (
            "adaptive-gamma policy check policy.yaml --strict",
            "adaptive-gamma policy check p.yaml --for vllm --engine-version 0.33 --engine-table table.json",
        ),
        "policy export": (
            "adaptive-gamma policy export h200-llama3-70b-fp8 --for vllm --engine-version 0.33",
            "adaptive-gamma policy export p.yaml --for sglang --class-mix structured=0.6,chat=0.4 -o adaptive.json",
        ),
        "policy show": (
            "adaptive-gamma policy show h200-llama3-70b-fp8 --class chat",
            "adaptive-gamma policy show policy.yaml --html policy.html",
        ),
        "report": (
            "adaptive-gamma report observed.jsonl --since 1h",
            "adaptive-gamma report http://127.0.0.1:9090 --since 15m --json",
        ),
        "roofline": ("adaptive-gamma roofline article-h100-27b --batch 1,16,64,256",),
        "serve": (
            "adaptive-gamma serve --config adaptive-gamma.yaml",
            "adaptive-gamma serve --config adaptive-gamma.yaml --listen 0.0.0.0:8080 --policy my-policy.yaml",
        ),
        "simulate-engine": (
            "adaptive-gamma simulate-engine --port 8001 --gamma 5 --acceptance structured=0.9,0.8",
            "adaptive-gamma simulate-engine --port 8002 --plain",
        ),
        "sweep": (
            "adaptive-gamma sweep --url spec=http://127.0.0.1:8001 --url plain=http://127.0.0.1:8002 -o results/",
        ),
    }
)
"""By the command's words."""


def with_examples(name: str, command: click.Command) -> click.Command:
    """Put the examples of a command, and of those below it, at the end of its help."""
    if isinstance(command, click.Group):
        for below, each in command.commands.items():
            with_examples(f"{name} {below}", each)
    lines = EXAMPLES.get(name)
    if lines is not None and command.help is not None and _TITLE not in command.help:
        command.help = "\n".join([inspect.cleandoc(command.help), "", "\b", _TITLE, *(f"  {line}" for line in lines)])
    return command
