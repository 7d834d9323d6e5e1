"""SIGKILL at points with a name ("begin put of a snapshot"): each is hit, the table reads as before or after, and a retry ends it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.faults.histories import ACTS, SHAPES, fill
from tests.faults.places import Disk
from tests.faults.sweep import Sweep
from tests.faults.victims import Nursery, point_of

_SOME = {"compact": 59, "expire": 37, "roll back": 47}
"""One of so many points of these acts are killed in `make test`; in `make soak` every point of every act."""


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    """One nursery for the module."""
    with Nursery() as running:
        yield running


def _points(trace: Path) -> list[str]:
    """Names of all points of a trace in the order in which they are first come to."""
    lines = (json.loads(line) for line in trace.read_text().splitlines())
    return list(dict.fromkeys(point_of(line["event"], line["step"], line["path"]) for line in lines))


@pytest.mark.parametrize(
    ("what", "shape", "stride"),
    [
        *((what, "keyed", stride) for what, stride in _SOME.items()),
        *(
            pytest.param(what, shape, 1, marks=(pytest.mark.soak, pytest.mark.timeout(3600)))
            for what in sorted(ACTS)
            for shape in (sorted(SHAPES) if what in ("write", "compact", "undo") else ["dynamic"])
        ),
    ],
)
def test_a_process_that_is_killed_at_a_named_point(
    what: str,
    shape: str,
    stride: int,
    nursery: Nursery,
    tmp_path: Path,
    record_property: Callable[[str, Any], None],
) -> None:
    fill(tmp_path / "template", SHAPES[shape])
    disk = Disk(tmp_path / "disk")
    sweep = Sweep(disk, shape, what, tmp_path / "template", tmp_path)
    sweep.unharmed()
    disk.copy("p", "whole")
    assert nursery.run(what, disk.warehouse("whole"), tmp_path / "whole.trace") == "ended"
    points = _points(tmp_path / "whole.trace")
    assert len(points) > 5
    for point in points[::stride]:
        disk.copy("p", "t")
        trace = tmp_path / "trace"
        assert nursery.run(what, disk.warehouse("t"), trace, point=point) == "killed", (what, point)
        assert point in _points(trace)
        trace.unlink()
        sweep.look("t", f"{what}, {shape}, killed at: {point}")
        disk.drop("t")
    record_property("kill points", len(points[::stride]))
