"""Any policy, exported: the engine takes it, and it keeps what was asked."""

from __future__ import annotations

import importlib
import importlib.util
import json
from itertools import product

import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from adaptive_gamma.errors import ExportRefused
from adaptive_gamma.policy import Policy
from adaptive_gamma.policy.export import EngineExport, ScheduleOptions, ServerOptions, export_policy, make_schedule

from .engine_rules import sglang_draft_lengths, tensorrt_llm_draft_lengths, vllm_decode_graphs, vllm_draft_lengths
from .inputs import small_policy
from .random_policies import random_policies


@st.composite
def questions(draw: st.DrawFn, policy: Policy) -> ScheduleOptions:
    return ScheduleOptions(
        mix=draw(st.none() | st.fixed_dictionaries({name: st.floats(0.1, 1.0) for name in policy.classes})),
        context_tokens=draw(st.none() | st.sampled_from([100.0, 9000.0])),
        median_load=draw(st.none() | st.floats(1, 200)),
        max_steps=draw(st.integers(1, 5)),
        tolerance=draw(st.sampled_from([0.0, 0.005, 0.05])),
        allow_zero=draw(st.booleans()),
        max_batch=draw(st.none() | st.integers(1, 250)),
        capture_limit_tokens=draw(st.none() | st.integers(1, 600)),
    )


def captured(policy: Policy, options: ScheduleOptions) -> int | None:
    return options.capture_limit_tokens or policy.inputs.limits.capture_limit_tokens


def must_be_refused(policy: Policy, options: ScheduleOptions) -> bool:
    limit = captured(policy, options)
    return limit is not None and not options.allow_zero and limit < max(policy.inputs.limits.min_gamma, 1) + 1


def asserted(policy: Policy, options: ScheduleOptions, made: EngineExport, drafted: list[int]) -> None:
    """What must hold of every exported table, whichever engine reads it."""
    limit, largest = captured(policy, options), made.schedule.max_batch
    assert len(drafted) == largest
    assert drafted == [made.schedule.gamma_at(b) for b in range(1, largest + 1)]
    for batch, gamma in enumerate(drafted, 1):
        assert gamma >= (0 if options.allow_zero else 1)
        assert gamma <= policy.max_gamma
        assert gamma == 0 or gamma >= policy.min_gamma
        assert limit is None or gamma == 0 or batch * (gamma + 1) <= limit
    edges = [b + 1 for b in range(1, largest) if drafted[b] != drafted[b - 1]]
    assert len(edges) < options.max_steps
    if options.median_load is not None:
        for first in edges:
            assert not abs(first - 0.5 - options.median_load) <= max(0.1 * options.median_load, 1.0)
    wanted = options.max_batch or policy.max_batch
    assert largest == wanted or (limit is not None and not options.allow_zero)
    if largest < wanted:
        assert limit is not None
        assert (largest + 1) * (max(policy.min_gamma, 1) + 1) > limit


@settings(max_examples=500)
@given(random_policies(), st.data())
def test_every_engine_takes_every_export(policy: Policy, data: st.DataObject) -> None:
    options = data.draw(questions(policy))
    by_class = data.draw(st.booleans())
    servers = {
        "vllm": ServerOptions(version="0.33"),
        "sglang": ServerOptions(method="EAGLE3", candidates_by_class=by_class),
        "tensorrt-llm": ServerOptions(version="1.3.1"),
    }
    if must_be_refused(policy, options):
        for engine, server in servers.items():
            with pytest.raises(ExportRefused, match="leave no room"):
                export_policy(policy, engine, server, options)
        return
    made = {engine: export_policy(policy, engine, server, options) for engine, server in servers.items()}
    vllm_keeps_the_rules(policy, options, made["vllm"])
    sglang_keeps_the_rules(policy, options, made["sglang"], by_class)
    tensorrt_llm_keeps_the_rules(policy, options, made["tensorrt-llm"])


def vllm_keeps_the_rules(policy: Policy, options: ScheduleOptions, made: EngineExport) -> None:
    config = json.loads(made.flags[made.flags.index("--speculative-config") + 1])
    assert config == made.config
    drafted = vllm_draft_lengths(config, int(made.flags[made.flags.index("--max-num-seqs") + 1]))
    asserted(policy, options, made, drafted)
    assert config["num_speculative_tokens"] == max(1, *drafted)
    limit = captured(policy, options)
    constant = "num_speculative_tokens_per_batch_size" not in config
    assert (
        constant == (len(made.schedule.steps) == 1 and drafted[0] > 0) == any(n.code == "constant" for n in made.notes)
    )
    given = "--cudagraph-capture-sizes" in made.flags
    assert constant or given == (limit is not None and limit > 512)
    if limit is not None:
        sizes = None
        if given:
            sizes = [int(size) for size in made.flags[made.flags.index("--cudagraph-capture-sizes") + 1 :]]
            assert max(sizes) <= limit
        graphs = vllm_decode_graphs(config, len(drafted), sizes)
        for batch, gamma in enumerate(drafted, 1):
            if gamma > 0:
                assert any(g == gamma and requests >= batch for g, requests in graphs), (batch, gamma)


def sglang_keeps_the_rules(policy: Policy, options: ScheduleOptions, made: EngineExport, by_class: bool) -> None:
    flag = dict(zip(made.flags, made.flags[1:], strict=False))
    steps = int(flag["--speculative-num-steps"])
    assert int(flag["--speculative-num-draft-tokens"]) == steps + 1
    largest = int(flag["--max-running-requests"])
    if "--speculative-adaptive" not in made.flags:
        assert made.table == steps
        assert made.file is None
        asserted(policy, options, made, [steps] * largest)
        return
    drafted = sglang_draft_lengths(json.loads(made.config_text), steps, largest)
    if not by_class:
        asserted(policy, options, made, drafted)
        return
    limit = captured(policy, options)
    assert all(limit is None or g == 0 or b * (g + 1) <= limit for b, g in enumerate(drafted, 1))
    for entry in made.config.values():
        assert entry["candidate_steps"] == [0] or 0 not in entry["candidate_steps"]


def tensorrt_llm_keeps_the_rules(policy: Policy, options: ScheduleOptions, made: EngineExport) -> None:
    read = yaml.safe_load(made.config_text)
    assert read == made.config
    drafted = tensorrt_llm_draft_lengths(read["speculative_config"], read["max_batch_size"])
    asserted(policy, options, made, drafted)


def test_vllm_itself_takes_an_export() -> None:
    name = "vllm.v1.spec_decode.dynamic.utils"
    if importlib.util.find_spec("vllm") is None:
        pytest.skip("vLLM is not installed here; its rules are checked by the validator in engine_rules.py")
    rules = importlib.import_module(name)
    policy = small_policy()
    for zero, steps in product((False, True), (1, 4)):
        options = ScheduleOptions(allow_zero=zero, max_steps=steps)
        made = export_policy(policy, "vllm", ServerOptions(version="0.33", method="eagle3"), options)
        if made.schedule.constant is not None:
            continue
        rules.validate_and_normalize_dynamic_sd_schedule(made.table)
        largest = made.schedule.max_batch
        dense = rules.build_dynamic_sd_schedule_lookup(made.table, largest, made.config["num_speculative_tokens"])
        found = [k[0] if isinstance(k, list) else k for k in getattr(dense, "dense", dense)][1:]
        assert found == vllm_draft_lengths(made.config, largest)


@given(random_policies(), st.data())
def test_the_losses_are_those_of_the_policy(policy: Policy, data: st.DataObject) -> None:
    """Recomputed from the policy's own look-ups, one batch at a time."""
    name = data.draw(st.sampled_from(policy.classes))
    zero = data.draw(st.booleans())
    options = ScheduleOptions(mix={name: 2.0}, allow_zero=zero, max_steps=data.draw(st.integers(1, 4)))
    if must_be_refused(policy, options):
        return
    made = make_schedule(policy, options)
    limit = captured(policy, options)
    gammas = [*([0] if zero else []), *range(max(policy.min_gamma, 1), policy.max_gamma + 1)]
    lost, weights = [], []
    for batch in range(1, made.max_batch + 1):
        speed = {
            g: policy.speedup(name, batch, g, made.context)
            for g in gammas
            if g == 0 or limit is None or batch * (g + 1) <= limit
        }
        lost.append(1 - speed[made.gamma_at(batch)] / max(speed.values()))
        weights.append(1 / batch)
    assert made.merging.mean == pytest.approx(np.average(lost, weights=weights), abs=1e-9)
    assert made.merging.worst == pytest.approx(max(lost), abs=1e-9)
    assert lost[made.merging.worst_batch - 1] == pytest.approx(max(lost), abs=1e-9)
    assert made.merging.mean <= made.static.mean + 1e-9
