"""Reads a sweep: files and folders of any known format into rows, with everything left out or doubted named."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from adaptive_gamma.bench.importers.agreement import check_agreement
from adaptive_gamma.bench.importers.arms import Arm, ArmBook
from adaptive_gamma.bench.importers.documents import read_content
from adaptive_gamma.bench.importers.finding import Findings, ImportFinding
from adaptive_gamma.bench.importers.formats import detect
from adaptive_gamma.bench.importers.prompts import made_up_by_name
from adaptive_gamma.bench.importers.raw import RawRow, ServerFacts
from adaptive_gamma.bench.importers.vllm_iterations import has_iterations, iteration_rows
from adaptive_gamma.bench.importers.vllm_serve import FORMAT as BENCH_SERVE
from adaptive_gamma.bench.importers.vllm_sweep import is_warmup
from adaptive_gamma.bench.row import SweepRow
from adaptive_gamma.bench.source import Source
from adaptive_gamma.errors import SweepError

__all__ = ["Sweep", "read_sweep"]


@dataclass(frozen=True, slots=True)
class Sweep:
    """What an import gave: the rows that can be used, and what was left out, refused or doubted."""

    rows: tuple[SweepRow, ...]
    findings: tuple[ImportFinding, ...]


def read_sweep(
    paths: Sequence[Path],
    *,
    force_random: bool = False,
    arms: Mapping[str, Arm] | None = None,
    only_model: str | None = None,
) -> Sweep:
    """Read result files, and all files in folders.

    Args:
        paths: files and folders.
        force_random: believe the acceptance measured on made-up prompts.
        arms: the gamma of arms by label, file or folder name (see ``parse_arms``); it goes before what files say.
        only_model: leave out the rows of other models.

    Returns: every run that can be used as one row. A file that cannot be read, a run that makes no sense and a value in
    doubt are findings.

    Raises:
        SweepError: for a path that does not exist, no files at all, or rows of more than one model.
        ConfigurationError: for an arm that fits no row.
    """
    findings = Findings()
    raws: list[tuple[RawRow, tuple[str, ...]]] = []
    facts: dict[str, list[ServerFacts]] = {}
    for path, root in _files(paths, findings):
        names = _names(path, root)
        for document in _documents(path, findings):
            if isinstance(document, RawRow):
                raws.append((document, names))
            else:
                facts.setdefault(str(path.parent), []).append(document)
    book = ArmBook(arms or {}, findings)
    rows = []
    for raw, names in raws:
        try:
            enriched = _with_facts(raw, facts, findings)
            check_agreement(raw.row)
            rows.append(_judge_prompts(book.settle(enriched, names), enriched, names, force_random, findings))
        except SweepError as error:
            findings.error(raw.row.source, error)
    book.check_all_used()
    rows = _without_repeats(rows, findings)
    rows = _one_model(rows, only_model, findings)
    return Sweep(tuple(rows), tuple(findings.items))


def _files(paths: Sequence[Path], findings: Findings) -> Iterator[tuple[Path, Path]]:
    """Each file with the path it was found under, in a stable order; links to folders are not followed.

    What is no file that can be read, such as a closed folder, a pipe or a link to nothing, is skipped by name.
    """
    found: list[tuple[Path, Path]] = []
    for root in paths:
        if root.is_dir():
            closed: list[OSError] = []
            inside = [
                Path(folder, name)
                for folder, folders, names in os.walk(root, onerror=closed.append)
                for name in (*names, *(name for name in folders if Path(folder, name).is_symlink()))
                if not name.startswith(".") and not any(part.startswith(".") for part in _below(folder, root))
            ]
            for error in closed:
                if not any(part.startswith(".") for part in _below(str(error.filename), root)):
                    findings.skipped(Source(str(error.filename)), f"cannot be read: {error.strerror}")
            for path in sorted(inside):
                if (problem := _no_file(path)) is None:
                    found.append((path, root))
                else:
                    findings.skipped(Source(str(path)), problem)
        elif root.is_file():
            found.append((root, root))
        else:
            problem = _no_file(root) if os.path.lexists(root) else None
            raise SweepError(str(root), "", problem or "there is no such file or folder")
    if not found:
        left_out = "; ".join(str(finding) for finding in findings.items[:8])
        problem = f"there are no files in it that can be read ({left_out})" if left_out else "there are no files in it"
        raise SweepError(", ".join(map(str, paths)) or "sweep", "", problem)
    seen: set[Path] = set()
    for path, root in found:
        real = path.resolve()
        if real not in seen:
            seen.add(real)
            yield path, root


def _no_file(path: Path) -> str | None:
    """Why a path is no file to read, or None where it is one."""
    try:
        mode = path.stat().st_mode
    except OSError as error:
        if error.errno == errno.ELOOP:
            return "is a link that leads back to itself"
        if error.errno == errno.ENOENT and path.is_symlink():
            return "is a link to nothing"
        return f"cannot be read: {error.strerror}"
    if stat.S_ISREG(mode):
        return None
    if stat.S_ISDIR(mode):
        return "is a link to a folder, which is not followed; give that folder itself"
    kinds = {stat.S_IFIFO: "a named pipe", stat.S_IFSOCK: "a socket"}
    return f"is {kinds.get(stat.S_IFMT(mode), 'a device')} and no file"


def _below(folder: str, root: Path) -> tuple[str, ...]:
    return Path(folder).relative_to(root).parts


def _names(path: Path, root: Path) -> tuple[str, ...]:
    """The names of the file and of its folders up to the one given, the nearest first."""
    if not root.is_dir():
        return (path.stem, path.name)
    return (path.stem, path.name, *reversed(path.parent.relative_to(root).parts), root.resolve().name)


def _documents(path: Path, findings: Findings) -> Iterator[RawRow | ServerFacts]:
    content = read_content(path, findings)
    if content.text is not None:
        if has_iterations(content.text):
            yield from iteration_rows(str(path), content.text, findings)
        else:
            findings.skipped(Source(str(path)), "is of no known format")
    ignored: set[str] = set()
    for document in content.documents:
        found = detect(document.value)
        if found is None:
            findings.skipped(document.source, "is of no known format")
        elif found.ignored is not None:
            if found.ignored not in ignored:
                ignored.add(found.ignored)
                findings.skipped(Source(document.source.file), found.ignored)
        elif found.name == BENCH_SERVE and is_warmup(document):
            findings.skipped(document.source, "is a warm-up run")
        else:
            try:
                if found.facts is not None:
                    yield found.facts(document, findings)
                elif found.rows is not None:
                    yield from found.rows(document, findings)
            except SweepError as error:
                findings.error(document.source, error)


def _with_facts(raw: RawRow, facts: Mapping[str, list[ServerFacts]], findings: Findings) -> RawRow:
    """The row with what files beside it say of the server, where it does not say so itself."""
    folder = Path(raw.row.source.file).parent
    for level, place in enumerate((folder, *folder.parents)):
        here = [fact for fact in facts.get(str(place), ()) if level == 0 or fact.below]
        for kind in ("vllm-server-info", "aiperf-server-metrics"):
            found = [fact for fact in here if fact.row.format == kind]
            if len(found) > 1:
                names = ", ".join(Path(fact.document.source.file).name for fact in found)
                findings.note(
                    raw.row.source, f"not known which of {names} is its server's; none is used", "server_info"
                )
            elif found:
                raw = _joined(raw, found[0])
        if here:
            break
    return raw


def _joined(raw: RawRow, fact: ServerFacts) -> RawRow:
    row, known = raw.row, fact.row
    row = replace(
        row,
        engine=row.engine or known.engine,
        engine_version=row.engine_version or known.engine_version,
        drafter=row.drafter or known.drafter,
        acceptance=row.acceptance or (known.acceptance if row.step is None else None),
    )
    return replace(raw, row=row, stated=raw.stated or fact.stated)


def _judge_prompts(
    row: SweepRow, raw: RawRow, names: Sequence[str], force_random: bool, findings: Findings
) -> SweepRow:
    """Marks acceptance measured on made-up prompts, so that no curve is made of it."""
    reason = raw.made_up_prompts or made_up_by_name(names)
    if reason is None or row.acceptance is None:
        return row
    if force_random:
        findings.note(
            row.source, f"measured on made-up prompts ({reason}), believed because it was forced", "acceptance"
        )
        return row
    findings.refused(
        row.source,
        f"measured on made-up prompts ({reason}): how often drafts of random tokens are accepted says nothing of real "
        "traffic. The run is used for its speed only; --force-random believes its acceptance too",
        "acceptance",
    )
    return replace(row, acceptance=replace(row.acceptance, made_up_prompts=True))


def _without_repeats(rows: Sequence[SweepRow], findings: Findings) -> list[SweepRow]:
    """The rows without those that say, to the last digit, what an earlier one said: a copy or a tool's summary."""
    first: dict[SweepRow, Source] = {}
    kept = []
    nowhere = Source("")
    for row in rows:
        same = replace(row, source=nowhere, arm=None)
        if same in first and row.step is None:
            findings.skipped(row.source, f"is the same run as {first[same]}")
        else:
            first.setdefault(same, row.source)
            kept.append(row)
    return kept


def _one_model(rows: Sequence[SweepRow], only_model: str | None, findings: Findings) -> list[SweepRow]:
    if only_model is not None:
        kept = [row for row in rows if row.model is None or _same_model(row.model, only_model)]
        if not kept and rows:
            models = ", ".join(sorted({row.model for row in rows if row.model is not None}))
            raise SweepError(str(rows[0].source), "model", f"no row is of {only_model!r}; there are {models}")
        for row in rows:
            if row.model is not None and not _same_model(row.model, only_model):
                findings.skipped(row.source, f"is of another model, {row.model!r}", "model")
        return kept
    named = [row for row in rows if row.model is not None]
    for row in named[1:]:
        if not _same_model(row.model or "", named[0].model or ""):
            raise SweepError(
                str(row.source),
                "model",
                f"{row.model!r} here, {named[0].model!r} in {named[0].source}: one policy is for one model "
                "(choose it with --only-model)",
            )
    return list(rows)


def _same_model(one: str, other: str) -> bool:
    """Whether two names may be of one model: paths, repositories and served names agree in their last part."""
    return one.rstrip("/").rsplit("/", 1)[-1].lower() == other.rstrip("/").rsplit("/", 1)[-1].lower()
