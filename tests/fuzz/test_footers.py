"""Flipped bits in Parquet footers: Arrow's own accessors end the process on many, so another process reads them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parents[2]
_STEP = 29
"""Coprime to 8, so that all bits of bytes come up."""


def sweep(first: int, step: int) -> dict[str, int]:
    """How often what happened; fails when the process was ended or anything but an error with the file's name or the right rows came."""
    command = [sys.executable, "-m", "tests.fuzz.footers", str(first), str(step)]
    ended = subprocess.run(command, cwd=HERE, capture_output=True, text=True, timeout=1200, check=False)
    last = ended.stdout.rstrip().rpartition("\n")[2]
    assert ended.returncode == 0, f"ended by {ended.returncode} at {last}: {ended.stderr[-2000:]}"
    document = json.loads(last)
    assert not document["findings"], document["findings"][:10]
    return dict(document["outcomes"])


def test_a_flipped_bit_of_a_footer_is_refused_by_name_or_changes_no_row() -> None:
    outcomes = sweep(3, _STEP)
    assert outcomes["refused"] > 500
    assert outcomes["right rows"] > 200


@pytest.mark.soak
def test_every_flipped_bit_of_a_footer_is_refused_by_name_or_changes_no_row() -> None:
    outcomes = sweep(0, 1)
    assert outcomes["refused"] > 20_000
