"""Peaks of memory are those of the measured process alone, whatever ran before in the one that asks."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from bench.harness import Result, in_own_process, own_peak, peak_of, table, with_java_version
from tests.support.peers import peer_module

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


def test_figures_of_java_name_its_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peer_module(), "bundle_jar", lambda: Path("/jars/paimon-bundle-2.0.0.jar"))
    beside = Result("compact", "files of java: Java's full compaction / ours", 2.5, "x", 3.0, "higher", note="warm")
    alone = Result("hash", "bucket hashing", 1.0, "s", None, note="ten columns")
    found = with_java_version([beside, alone])
    assert found[0].note.startswith("warm; Paimon 2.0.0, JVM ")
    assert found[1] == alone
    assert "Paimon 2.0.0" in table(found)
