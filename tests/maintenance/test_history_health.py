"""What a table's history owes: as many overdue snapshots as an expiry would take, who holds them, gaps, tags, manifests."""

from __future__ import annotations

from pathlib import Path

import pytest

from lsm_core.clock import FixedClock
from lsm_core.maintenance import plan_expiry
from lsm_core.maintenance.actions.expire_snapshots import ExpireItem
from lsm_core.maintenance.history_health import HistoryHealth, read_history_health
from lsm_core.metadata import consumers, tags
from lsm_core.metadata.store import TableStore
from tests.maintenance.tables import HOUR, NOW, keyed, rows

GOING = {"write_only": "true", "snapshot__num_retained__min": "2", "snapshot__time_retained": "1 h"}


def _reopened(store: TableStore, now_ms: int) -> TableStore:
    return TableStore.open(store.file_io, store.root, store.name, FixedClock(now_ms), store.dynamic_options)


@pytest.mark.parametrize("most", ["100", "4"])
def test_as_many_snapshots_are_overdue_as_an_expiry_would_take(tmp_path: Path, most: str) -> None:
    table = keyed(tmp_path, snapshot__num_retained__max=most, **GOING)
    for number in range(7):
        store = _reopened(table.store, NOW + number * HOUR // 2)
        type(table)(store).write(rows([number]))
    Path(table.store.snapshot_path(4)).unlink()  # a gap, over which expiry goes
    seen = set()
    for half_hours in (0, 3, 5, 6, 9):
        store = _reopened(table.store, NOW + half_hours * HOUR // 2)
        planned = plan_expiry(store, max_deletes=1_000)
        wanted = len(planned.items_of(ExpireItem))
        assert read_history_health(store).overdue == wanted, half_hours
        seen.add(wanted)
        later = _reopened(table.store, NOW + half_hours * HOUR // 2 + 5 * HOUR)
        if most == "100" or half_hours >= 6:  # snapshots that did not exist 5 hours ago made nothing overdue then
            assert read_history_health(later, grace_ms=5 * HOUR).overdue == wanted
    assert len(seen) > 2 or most == "4"
    assert read_history_health(store).gaps == ((4, 4),)


def test_snapshots_beyond_the_maximum_are_overdue_only_after_the_grace_period(tmp_path: Path) -> None:
    table = keyed(tmp_path, snapshot__num_retained__max="3", **GOING)
    for number in range(10):
        store = _reopened(table.store, NOW + number * 60_000)
        type(table)(store).write(rows([number]))
    young = _reopened(table.store, NOW + 9 * 60_000)
    assert read_history_health(young).overdue == 7, "an expiry would remove them now"
    assert read_history_health(young, grace_ms=24 * HOUR).overdue == 0, "the table is nine minutes old"
    day_later = _reopened(table.store, NOW + 24 * HOUR + 5 * 60_000)
    assert read_history_health(day_later, grace_ms=24 * HOUR).overdue == 3, "of the six snapshots of a day ago"
    kept = read_history_health(day_later, grace_ms=24 * HOUR, retention_at=lambda _: {"retain_max": 5})
    assert kept.overdue == 1, "the policy keeps five"


def test_the_slowest_consumer_is_told_with_what_it_holds(tmp_path: Path) -> None:
    table = keyed(tmp_path, **GOING)
    for number in range(6):
        table.write(rows([number]))
    for name, following in (("quick", 6), ("slow", 3)):
        consumers.write_consumer(table.store, name, following)
    debt = read_history_health(_reopened(table.store, NOW + 9 * HOUR))
    assert (debt.consumers, debt.consumer, debt.consumer_behind) == (2, "slow", 4)
    assert (debt.overdue, debt.held, debt.snapshots) == (2, 2, 6)
    assert debt.consumer_seen_ms is not None and debt.earliest_ms == NOW


def test_tags_manifests_and_nothing(tmp_path: Path) -> None:
    table = keyed(tmp_path, **GOING)
    assert read_history_health(table.store) == HistoryHealth()
    table.write(rows([1]))
    table.create_tag("kept")
    table.create_tag("short", time_retained="1 h")
    debt = read_history_health(_reopened(table.store, NOW + 3 * HOUR))
    assert (debt.tags, debt.overdue_tags) == (2, ("short",))
    assert read_history_health(_reopened(table.store, NOW + 3 * HOUR), grace_ms=4 * HOUR).overdue_tags == ()
    assert (debt.manifests, debt.small_manifests) == (1, 1) and debt.manifest_bytes > 0
    assert tags.list_names(table.store) == ["kept", "short"]
