"""Peaks of memory are those of the measured process alone, whatever ran before in the one that asks."""

from __future__ import annotations

import sys

import numpy as np

from bench.harness import in_own_process, own_peak, peak_of

_BALLAST = 400 * 2**20


def test_a_peak_does_not_begin_with_what_the_parent_held() -> None:
    held = np.ones(_BALLAST // 8)
    program = "import json; from bench.harness import own_peak; print(json.dumps(own_peak()))"
    child = in_own_process(program)
    assert held.sum() > 0
    assert own_peak() > 400
    assert 10 < child < 300


def test_the_peak_of_a_command_is_what_it_held_at_most() -> None:
    small, _ = peak_of([sys.executable, "-c", "import time; time.sleep(0.1)"])
    large, seconds = peak_of([sys.executable, "-c", "import time; b = bytearray(200 << 20); time.sleep(0.2)"])
    assert large - small > 150
    assert seconds >= 0.2
