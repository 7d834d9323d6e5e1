"""Over thousands of random layouts: cleaning takes no file that anything needs, and leaves no stray that is old enough."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress

import pytest

from lsm_core import Table
from lsm_core.clock import FixedClock
from lsm_core.errors import DredgeError
from lsm_core.metadata.store import TableStore
from lsm_core.options import ALLOWED_PLACES
from lsm_core.storage import FaultyFileIO
from tests.maintenance.layouts import DAY, HOUR, ROOT, Layout, check
from tests.support.memory_file_io import MemoryFileIO

_QUICK, _LONG = 16, 5_000


@pytest.fixture(autouse=True)
def _places_are_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The operator allows the external place that some layouts declare."""
    monkeypatch.setenv(ALLOWED_PLACES, "/outside/t")


def test_no_needed_file_goes_and_no_old_stray_stays() -> None:
    outcomes = Counter(check(Layout(seed)) for seed in range(_QUICK))
    assert outcomes["planned"] > _QUICK // 2
    assert {"snapshots-moved", "listing-incomplete"} <= outcomes.keys()


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("part", range(10))
def test_no_needed_file_goes_and_no_old_stray_stays_in_thousands_of_layouts(part: int) -> None:
    share = _LONG // 10
    for seed in range(10_000 + part * share, 10_000 + (part + 1) * share):
        check(Layout(seed))


def _failing_points(seed: int, stride: int) -> int:
    """Fail at every ``stride``-th I/O step of plan, apply and sweep of one layout, not applied and applied; the points that there were."""
    layout = Layout(seed, plain=True)
    files, folders = dict(layout.io.files), {path: dict(names) for path, names in layout.io.folders.items()}
    now, needed = layout.io.now_ms, layout.needed()
    named, old = layout.named(), {path for path, (_, changed) in files.items() if changed < now - DAY}
    strays = {path for path in layout.strays & old if path.rpartition("/")[2] not in named}
    assert strays

    def clean(faulty: FaultyFileIO) -> None:
        clock = FixedClock(now)
        table = Table(TableStore.open(faulty, ROOT, "db.t", clock))
        table.apply(table.plan_maintenance("orphans", max_share=100))
        clock.advance(50 * HOUR)
        failed = table.sweep_trash().failed
        if failed:
            raise OSError(failed[0].text)

    def fresh() -> MemoryFileIO:
        copy = MemoryFileIO(now)
        copy.files, copy.folders = dict(files), {path: dict(names) for path, names in folders.items()}
        return copy

    counting = FaultyFileIO(fresh())
    clean(counting)
    points = 0
    for step in range(1, counting.steps + 1, stride):
        name, path = counting.log[step - 1]
        for mode in (
            ("before", "after")
            if name in {"write_exclusive", "overwrite", "delete", "create", "close"}
            else ("before",)
        ):
            memory, at = fresh(), f"seed {seed}, step {step} {mode}: {name} {path}"
            with suppress(OSError, DredgeError):
                clean(FaultyFileIO(memory, fail_at=step, mode=mode))
            assert not needed - memory.files.keys(), at
            clean(FaultyFileIO(memory))
            memory.now_ms += 50 * HOUR
            clean(FaultyFileIO(memory))
            assert not needed - memory.files.keys(), at
            assert not strays & memory.files.keys(), at
            points += 1
    return points


def test_a_failure_at_any_step_takes_nothing_needed_and_a_retry_leaves_no_stray() -> None:
    assert _failing_points(42, stride=24) > 4


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(100, 140))
def test_a_failure_at_every_step_takes_nothing_needed_and_a_retry_leaves_no_stray(seed: int) -> None:
    assert _failing_points(seed, stride=1) > 50
