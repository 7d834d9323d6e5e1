"""Acts without a plan are told in the ledger, as all others are."""

from __future__ import annotations

from pathlib import Path

import pytest

from lsm_core.errors import InvalidOption, SnapshotNotFound, StorageRefused, TableExists
from lsm_core.storage import FaultyFileIO, LocalFileIO
from tests.maintenance.tables import keyed, rows, with_io


def test_branches_tags_and_consumers_leave_a_line_each(tmp_path: Path) -> None:
    table = keyed(tmp_path)
    table.write(rows(range(3)))
    table.create_tag("a")
    for act in (
        lambda: table.create_branch("dev", from_tag="a"),
        lambda: table.rename_branch("dev", "trial"),
        lambda: table.rename_tag("a", "b"),
        lambda: table.reset_consumer("job", 1),
        lambda: table.reset_consumer("job", 2),
        lambda: table.forget_consumer("job"),
    ):
        table.store.clock.advance(1)  # entries are in the order of their times
        act()
    records = [(entry.action, dict(entry.report)) for entry in table.ledger()[1:]]
    assert records == [
        ("create_branch", {"branch": "dev", "from_tag": "a"}),
        ("rename_branch", {"branch": "dev", "to": "trial"}),
        ("rename_tag", {"tag": "a", "new_name": "b"}),
        ("reset_consumer", {"consumer": "job", "next_snapshot": 1}),
        ("reset_consumer", {"consumer": "job", "next_snapshot": 2, "before": 1}),
        ("reset_consumer", {"consumer": "job", "before": 2}),
    ]
    assert {entry.outcome for entry in table.ledger()} == {"done"} and table.ledger()[-1].base_snapshot == 1


def test_what_did_nothing_leaves_no_line(tmp_path: Path) -> None:
    table = keyed(tmp_path)
    table.write(rows(range(3)))
    table.create_tag("a")
    table.create_branch("dev")
    before = len(table.ledger())
    table.rename_tag("a", "a")
    assert table.forget_consumer("nobody") is False
    table.reset_consumer("nobody")
    with pytest.raises(TableExists):
        table.create_branch("dev")
    with pytest.raises(SnapshotNotFound):
        table.rename_tag("none", "b")
    with pytest.raises(InvalidOption):
        table.reset_consumer("job", 0)
    assert len(table.ledger()) == before


def test_what_storage_stopped_is_told_as_failed(tmp_path: Path) -> None:
    table = keyed(tmp_path)
    table.write(rows(range(3)))
    counting = FaultyFileIO(LocalFileIO())
    with_io(table, counting).reset_consumer("job", 1)
    step = next(
        number for number, (name, path) in enumerate(counting.log, 1) if "consumer-job" in path and name == "overwrite"
    )
    with pytest.raises((OSError, StorageRefused)):
        with_io(table, FaultyFileIO(LocalFileIO(), fail_at=step)).reset_consumer("job", 2)
    assert sorted(entry.outcome for entry in table.ledger()) == ["done", "failed"]


def test_a_damaged_consumer_can_be_forgotten(tmp_path: Path) -> None:
    table = keyed(tmp_path)
    table.write(rows(range(3)))
    table.reset_consumer("job", 1)
    table.store.clock.advance(1)
    (Path(table.store.root) / "consumer" / "consumer-job").write_text("{")
    assert table.forget_consumer("job") is True
    assert table.consumers() == {} and table.ledger()[-1].report == {"consumer": "job"}
