"""The library that ships with the package: accelerators, models and drafter families, as YAML with their sources.

    policies/library/accelerators.yaml    peaks, and the share of them that measured kernels reach
    policies/library/models.yaml          shapes, from published config.json files
    policies/library/drafters.yaml        cost of a draft, priors by class, the published figures they rest on

It is read once, on first use.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from adaptive_gamma.errors import PolicyError
from adaptive_gamma.policy.document import parse_section
from adaptive_gamma.policy.priors import DrafterFamily, DrafterPrior, MeasuredAcceptance, Standing
from adaptive_gamma.policy.schema import DrafterInput
from adaptive_gamma.policy.units import Efficiency as Share
from adaptive_gamma.policy.units import Rate, measured_in
from adaptive_gamma.policy.yaml_file import SHIPPED_FOLDERS, read_yaml_mapping
from adaptive_gamma.roofline import Efficiency, Hardware, ModelShape

__all__ = ["LIBRARY_SCHEMA", "Library", "family_named", "hardware_named", "library", "load_library", "model_named"]

LIBRARY_SCHEMA = "adaptive-gamma/library/v1"


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class _BestFit(_Section):
    memory: Share
    compute: Share
    power: Annotated[float, Field(ge=1)]
    error: Annotated[float, Field(ge=0)]


class _Efficiency(_Section):
    memory: Share
    compute: Share
    memory_at: dict[int, Share]
    compute_at: dict[int, Share]
    best_fit: _BestFit


class _Accelerator(_Section):
    aliases: list[str]
    bandwidth_bytes_per_s: Annotated[float, measured_in("bytes/s", 1e10, 1e15, {"TB/s": 1e12, "GB/s": 1e9})]
    bf16_flops_per_s: Annotated[float, measured_in("FLOP/s", 1e13, 1e17, {"PFLOP/s": 1e15, "TFLOP/s": 1e12})]
    fp8_flops_per_s: Annotated[float, measured_in("FLOP/s", 1e13, 1e17, {"PFLOP/s": 1e15, "TFLOP/s": 1e12})] | None
    memory_bytes: Annotated[float, measured_in("bytes", 1e9, 1e14, {"GB": 1e9})]
    standing: Literal["datasheet", "recalled", "inferred"]
    source: str
    efficiency: dict[Literal["bf16", "fp8"], _Efficiency] = {}


class _Model(_Section):
    aliases: list[str]
    parameters: Annotated[float, measured_in("parameters", 1e6, 1e13, {"billions": 1e9})]
    config: dict[str, Any]


class _Prior(_Section):
    first: Rate
    plateau: Rate
    pseudo_drafts: Annotated[float, Field(gt=0, le=1e6)] = 30.0
    standing: Standing
    source: str


class _Measured(_Section):
    target: str
    task: str
    class_: Annotated[str | None, Field(alias="class")]
    unconditional: list[Rate] = []
    accepted_length: dict[int, Annotated[float, Field(ge=1, le=65)]] = {}
    source: str


class _Drafter(_Section):
    aliases: list[str]
    cost: DrafterInput
    priors: Annotated[dict[str, _Prior], Field(min_length=1)]
    measured: list[_Measured]


class _File(_Section):
    schema_: Annotated[Literal["adaptive-gamma/library/v1"], Field(alias="schema")]
    kind: Literal["accelerators", "models", "drafters"]
    sources: dict[str, str]
    accelerators: dict[str, _Accelerator] = {}
    models: dict[str, _Model] = {}
    drafters: dict[str, _Drafter] = {}


@dataclass(frozen=True, slots=True)
class Library:
    """What the files hold, by name, in the order of the files."""

    accelerators: Mapping[str, Hardware]
    models: Mapping[str, ModelShape]
    drafters: Mapping[str, DrafterFamily]
    _names: Mapping[str, Mapping[str, str]]

    def accelerator(self, name: str) -> Hardware | None:
        """The accelerator of that name or alias, case and punctuation aside (``h100`` is the SXM one)."""
        return self.accelerators.get(self._names["accelerators"].get(_squeezed(name), ""))

    def model(self, name: str) -> ModelShape | None:
        """The model of that name; an organisation in front and ``-Instruct`` behind do not matter."""
        last = name.rsplit("/", 1)[-1]
        bare = last[: -len("-instruct")] if last.lower().endswith("-instruct") else last
        return self.models.get(self._names["models"].get(_squeezed(bare), ""))

    def drafter(self, name: str) -> DrafterFamily | None:
        """The drafter family of that name or alias, case and punctuation aside."""
        return self.drafters.get(self._names["drafters"].get(_squeezed(name), ""))


@functools.cache
def library() -> Library:
    """The library that ships with the package. Raises PolicyError where a file is missing or wrong."""
    for folder in SHIPPED_FOLDERS:
        if (folder / "library").is_dir():
            return load_library(folder / "library")
    raise PolicyError("library", "", "is missing from this installation (expected accelerators, models, drafters)")


def load_library(folder: Path) -> Library:
    """A library from a folder with the three files. Raises PolicyError that names file, key and problem."""
    files = {kind: folder / f"{kind}.yaml" for kind in ("accelerators", "models", "drafters")}
    read = {kind: _read(path, kind) for kind, path in files.items()}
    names = {
        "accelerators": _names(
            files["accelerators"],
            "accelerators",
            ((n, a.aliases) for n, a in read["accelerators"].accelerators.items()),
        ),
        "models": _names(files["models"], "models", ((n, m.aliases) for n, m in read["models"].models.items())),
        "drafters": _names(
            files["drafters"], "drafters", ((n, d.aliases) for n, d in read["drafters"].drafters.items())
        ),
    }
    return Library(
        accelerators={name: _hardware(name, entry) for name, entry in read["accelerators"].accelerators.items()},
        models={name: _shape(name, entry, str(files["models"])) for name, entry in read["models"].models.items()},
        drafters={name: _family(name, entry) for name, entry in read["drafters"].drafters.items()},
        _names=names,
    )


def hardware_named(name: str) -> Hardware | None:
    """The shipped accelerator of that name, case and punctuation aside; None where there is none."""
    return library().accelerator(name)


def model_named(name: str) -> ModelShape | None:
    """The shipped model of that name, or None."""
    return library().model(name)


def family_named(name: str) -> DrafterFamily | None:
    """The shipped drafter family of that name, case and punctuation aside; None where there is none."""
    return library().drafter(name)


def _read(path: Path, kind: str) -> _File:
    source = str(path)
    data = read_yaml_mapping(path, "library file", f"schema, kind, sources and {kind}")
    file = parse_section(_File, data, source, "")
    if file.kind != kind:
        raise PolicyError(source, "kind", f"expected {kind!r}, not {file.kind!r}")
    return file


def _names(path: Path, kind: str, entries: Iterable[tuple[str, list[str]]]) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, aliases in entries:
        for spelling in (name, *aliases):
            squeezed = _squeezed(spelling)
            if found.get(squeezed, name) != name:
                raise PolicyError(str(path), f"{kind}.{name}", f"{spelling!r} means {found[squeezed]!r} already")
            found[squeezed] = name
    return found


def _hardware(name: str, entry: _Accelerator) -> Hardware:
    reached = {f: Efficiency(e.memory, e.compute) for f, e in entry.efficiency.items()}
    return Hardware(
        name,
        entry.bandwidth_bytes_per_s,
        entry.bf16_flops_per_s,
        entry.fp8_flops_per_s,
        entry.memory_bytes,
        entry.source,
        reached.get("bf16"),
        reached.get("fp8"),
    )


def _shape(name: str, entry: _Model, source: str) -> ModelShape:
    try:
        return ModelShape.from_hf_config({"_name_or_path": name, **entry.config})
    except ValueError as error:
        raise PolicyError(source, f"models.{name}.config", str(error)) from error


def _family(name: str, entry: _Drafter) -> DrafterFamily:
    return DrafterFamily(
        name=name,
        aliases=tuple(entry.aliases),
        drafter=entry.cost,
        priors={
            c: DrafterPrior(p.first, p.plateau, p.pseudo_drafts, p.standing, p.source) for c, p in entry.priors.items()
        },
        measured=tuple(
            MeasuredAcceptance(m.target, m.task, m.class_, tuple(m.unconditional), dict(m.accepted_length), m.source)
            for m in entry.measured
        ),
    )


def _squeezed(name: str) -> str:
    return "".join(c for c in name.lower() if c.isalnum())
