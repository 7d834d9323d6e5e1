"""Every act on a table's history and files, broken at every I/O step, on three shapes of tables, on a disk and in an object store."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.faults.histories import ACTS, SHAPES, fill
from tests.faults.places import Bucket, Disk, Place
from tests.faults.sweep import Sweep
from tests.support.s3_server import S3Server
from tests.support.samples import sample

STRIDE = int(os.environ.get("DREDGE_SWEEP_STRIDE", "1"))
"""`make soak` breaks every step; with this variable every so many, for a machine that has no hours."""


@pytest.fixture(scope="module")
def templates(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A table of each shape."""
    made = {name: tmp_path_factory.mktemp(name) / "wh" for name in SHAPES}
    for name, warehouse in made.items():
        fill(warehouse, SHAPES[name])
    return made


def _place(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> Place:
    if kind == "disk":
        return Disk(tmp_path / "disk")
    server: S3Server = request.getfixturevalue("s3")
    return Bucket(server)


def _swept(sweep: Sweep, record_property: Callable[[str, Any], None], kind: str, stride: int, first: int = 0) -> None:
    tally = sweep.run(stride, first)
    record_property(f"fault points, {kind}", tally.points)
    assert tally.points > 0
    if stride == 1:
        assert tally.points >= tally.steps - 3
        assert "failed" in tally.outcomes and tally.states > 1


@pytest.mark.parametrize(
    ("what", "shape", "kind"),
    sample(
        [
            ("compact", "append", "disk"),
            ("expire partitions", "keyed", "disk"),
            ("orphans", "keyed", "disk"),
            ("restore a branch", "dynamic", "disk"),
            ("write", "dynamic", "disk"),
            ("sweep", "keyed", "object store"),
        ],
        lambda case: case[0] in ("expire partitions", "write", "sweep"),
    ),
)
def test_an_act_broken_at_some_steps(
    what: str,
    shape: str,
    kind: str,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    record_property: Callable[[str, Any], None],
) -> None:
    """A sample; other tests of this folder and of tests/maintenance break the other acts at some steps."""
    fill(tmp_path / "template", SHAPES[shape])
    place = _place(kind, tmp_path, request)
    _swept(Sweep(place, shape, what, tmp_path / "template", tmp_path), record_property, kind, stride=149, first=11)


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("shape", sorted(SHAPES))
@pytest.mark.parametrize("kind", ["disk", "object store"])
@pytest.mark.parametrize("what", sorted(ACTS))
def test_an_act_broken_at_every_step(
    what: str,
    kind: str,
    shape: str,
    templates: dict[str, Path],
    tmp_path: Path,
    request: pytest.FixtureRequest,
    record_property: Callable[[str, Any], None],
) -> None:
    sweep = Sweep(_place(kind, tmp_path, request), shape, what, templates[shape], tmp_path)
    _swept(sweep, record_property, kind, STRIDE)
