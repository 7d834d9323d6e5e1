"""Consumers: what they hold back, and that one which is silent for too long holds nothing back any more."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lsm_core import Table
from lsm_core.errors import InvalidData, InvalidOption
from lsm_core.maintenance.action import find_action
from lsm_core.metadata import consumers
from tests.maintenance.tables import HOUR, NOW, keyed, rows


@pytest.fixture
def table(tmp_path: Path) -> Table:
    made = keyed(tmp_path, consumer__expiration_time="1 h".replace(" ", ""))
    for i in range(4):
        made.write(rows([i]))
    return made


def seen(table: Table, consumer: str, millis: int) -> None:
    os.utime(consumers.consumer_path(table.store, consumer), (millis / 1000, millis / 1000))


def test_consumers_are_listed_reset_and_forgotten(table: Table) -> None:
    table.reset_consumer("a", 2)
    table.reset_consumer("b", 3)
    assert table.consumers() == {"a": 2, "b": 3}
    stream = table.new_stream_scan("b")
    batch = stream.next()
    assert batch is not None and batch.snapshot_id == 3
    stream.checkpoint()
    table.reset_consumer("a", 4)
    assert table.consumers() == {"a": 4, "b": 4}
    table.reset_consumer("a")
    assert table.consumers() == {"b": 4}
    for wrong in (0, -1, 1.5, True, "2"):
        with pytest.raises(InvalidOption, match="next_snapshot"):
            table.reset_consumer("b", wrong)  # type: ignore[arg-type]
    with pytest.raises(InvalidData):
        table.reset_consumer("../b", 2)
    assert table.consumers() == {"b": 4}


def test_a_silent_consumer_goes_with_the_next_expiry(table: Table) -> None:
    for name, since in (("alive", NOW - HOUR), ("silent", NOW - HOUR - 1)):
        table.reset_consumer(name, 2)
        seen(table, name, since)
    plan = table.plan_maintenance("expire_snapshots", retain_max=1)
    kinds = [item.item_kind for item in plan.items]
    assert kinds[0] == "expire_consumer" and kinds.count("expire") == 1  # the other one holds snapshot 2
    report = table.apply(plan)
    assert (report.consumers, report.expired) == (("silent",), (1,))
    assert table.consumers() == {"alive": 2}
    assert "silent" in report.lines("db.t")[0]
    [records] = [entry for entry in table.ledger() if entry.action == "expire_snapshots"]
    assert {"event": "forgot", "consumer": "silent", "next_snapshot": 2} in [dict(element) for element in records.lines]
    table.store.clock.advance(1)
    plan = table.plan_maintenance("expire_snapshots", retain_min=10)
    action = find_action("expire_snapshots")
    assert action.fits(table.store, plan), "a plan that only forgets a consumer can be applied"
    only = table.apply(plan)
    assert not action.fits(table.store, plan)
    assert (only.consumers, only.expired, only.changed) == (("alive",), (), True)


def test_a_consumer_that_speaks_after_the_plan_stays(table: Table) -> None:
    table.reset_consumer("late", 2)
    seen(table, "late", NOW - 2 * HOUR)
    plan = table.plan_maintenance("expire_snapshots", retain_min=10)
    table.reset_consumer("late", 3)
    seen(table, "late", NOW)
    assert table.apply(plan).consumers == ()
    assert table.consumers() == {"late": 3}


def test_without_the_option_no_consumer_is_too_old(tmp_path: Path) -> None:
    table = keyed(tmp_path)
    table.write(rows([1]))
    table.reset_consumer("old", 1)
    seen(table, "old", 1)
    assert table.plan_maintenance("expire_snapshots").items == ()
