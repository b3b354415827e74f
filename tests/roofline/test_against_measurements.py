"""Predictions against published measurements. None of them is this project's own; `make accuracy` has the rest."""

from __future__ import annotations

import numpy as np
import pytest

from adaptive_gamma.roofline import LinearStep
from adaptive_gamma.roofline.calibrate import Observation, calibrate
from benchmarks.accuracy.dspark import predicted
from benchmarks.accuracy.sources import read_measured

from .test_step_time import llama_8b


def test_two_gammas_predict_the_others() -> None:
    """DSpark on B300: the plain curve, gamma 3 and gamma 7 give gamma 1, 5 and 6 where the plain curve reaches."""
    _, rows = read_measured("dspark_deepseek_v4_pro_b300.csv")
    seen = [
        Observation(
            float(r["concurrency"]), int(r["gamma"]), r["gamma"] != "0", 0, 0, 1 / float(r["tokens_per_s_of_one_user"])
        )
        for r in rows
    ]
    found = calibrate([o for o in seen if o.gamma in (0, 3, 7)], model="plain_pool", drafter="parallel", bootstrap=0)
    held_out = [o for o in seen if o.gamma in (1, 5, 6) and o.decode_tokens <= 256]
    assert len(held_out) == 11
    assert np.mean([abs(predicted(found, o) / o.seconds_per_token - 1.0) for o in held_out]) < 0.04


def test_the_shipped_roofline_against_a_measured_fit() -> None:
    """Llama-3.1-8B on H100 under vLLM: 5.886 ms + 21.01 us per token + 39.26 ns per KV token (arXiv 2601.11580).

    Close at both ends; where memory and compute take alike, p = 2 is up to 28 % below the sum that the fit is.
    """
    measured = LinearStep(5.886e-3, 21.01e-6, 39.26e-9)
    batches, widths = np.asarray([1, 4, 16, 64, 128])[:, None], np.asarray([1, 2, 4, 8])
    ratio = llama_8b().seconds(batches, widths, 1000) / measured.seconds(batches, widths, 1000)
    assert np.abs(ratio - 1.0).mean() < 0.15
    assert ratio[0, 0] == pytest.approx(1.0, abs=0.03)
    assert ratio.min() > 0.7
