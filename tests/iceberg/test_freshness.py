"""Freshness of Iceberg metadata: current, behind, taken back, missing, damaged or left over; times of commits."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from lsm_core import Catalog, Table
from lsm_core.format.snapshot import CommitKind
from lsm_core.iceberg.freshness import CommitTimes, IcebergCondition, read_view, shown_from_level
from lsm_core.metadata import snapshots
from lsm_core.options import TableOptions
from lsm_core.table.schema_change import SchemaChange
from tests.support.iceberg import ON, publish, write_metadata

ROWS = pa.schema([pa.field("k", pa.int64(), nullable=False), ("v", pa.string())])


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> Table:
    """A table with three appends, a full compaction, and an append."""
    catalog = Catalog(str(tmp_path_factory.mktemp("house")))
    catalog.create_database("shop")
    table = catalog.create_table("shop.t", ROWS, primary_keys=["k"], options={"bucket": "1", "write-only": "true"})
    for number in range(3):
        table.write(pa.table({"k": [number], "v": ["a"]}, schema=ROWS))
    table.compact(full=True)
    table.write(pa.table({"k": [9], "v": ["a"]}, schema=ROWS))
    return table


def test_metadata_of_the_newest_snapshot_is_current(history: Table) -> None:
    view = read_view(publish(history.store, 4, 5))
    assert view is not None
    assert (view.condition, view.shown, view.since_ms) == (IcebergCondition.CURRENT, 5, None)


def test_metadata_of_an_older_snapshot_is_behind_since_the_next_commit(history: Table) -> None:
    view = read_view(publish(history.store, 3))
    assert view is not None
    assert (view.condition, view.shown, view.newest) == (IcebergCondition.BEHIND, 3, 5)
    assert view.since_ms == snapshots.read(history.store, 4).time_millis
    assert "snapshot 3, and the newest is 5" in view.text


@pytest.mark.parametrize("ids", [(6,), (5,)])
def test_a_snapshot_that_was_taken_back_is_replaced(history: Table, ids: tuple[int, ...]) -> None:
    write_metadata(Path(history.store.root) / "metadata", ids, identities={5: "another-commit"})
    view = read_view(history.store.copy(ON))
    assert view is not None
    assert (view.condition, view.since_ms) == (IcebergCondition.REPLACED, None)
    assert "taken back" in view.text
    for path in (Path(history.store.root) / "metadata").iterdir():
        path.unlink()


def test_no_metadata_and_damaged_metadata(history: Table) -> None:
    folder = Path(history.store.root) / "metadata"
    publish(history.store)
    for path in folder.iterdir():
        path.unlink()
    view = read_view(history.store.copy(ON))
    assert view is not None
    assert (view.condition, view.since_ms) == (
        IcebergCondition.MISSING,
        snapshots.read(history.store, 1).time_millis,
    )
    (folder / "v5.metadata.json").write_text("[")
    view = read_view(history.store.copy(ON))
    assert view is not None
    assert view.condition is IcebergCondition.UNREADABLE
    assert "v5.metadata.json" in view.text
    (folder / "v5.metadata.json").unlink()


def test_metadata_of_a_table_whose_option_was_turned_off(tmp_path: Path) -> None:
    catalog = Catalog(str(tmp_path))
    catalog.create_database("shop")
    table = catalog.create_table("shop.t", ROWS, primary_keys=["k"], options={"bucket": "1"})
    table.write(pa.table({"k": [1], "v": ["a"]}, schema=ROWS))
    publish(table.store)
    assert read_view(table.store) is None, "its only schema never had the option"
    catalog.alter_table("shop.t", [SchemaChange.set_option("snapshot.num-retained.min", "3")])
    view = read_view(catalog.table("shop.t").store)
    assert view is not None
    assert (view.condition, view.shown) == (IcebergCondition.LEFT_OVER, 1)
    assert f"{table.store.root}/metadata" in view.text


def test_branches_have_no_view(history: Table) -> None:
    store = publish(history.store)
    branch = type(store)(store.file_io, store.root, store.name, store.schema, store.options, branch="b")
    assert read_view(branch) is None


def test_the_first_commit_after_a_full_compaction(history: Table) -> None:
    store = history.store
    times = {snapshot.id: snapshot.time_millis for snapshot in snapshots.iterate(store)}
    assert snapshots.read(store, 4).commit_kind is CommitKind.COMPACT
    commits = CommitTimes(store, 5)
    assert commits.first_after(0) == times[1]
    assert commits.first_after(times[1]) == times[2]
    assert commits.first_after(times[3]) == times[5], "a compaction writes no new rows"
    assert commits.first_after(times[5]) == times[5], "no commit follows"
    assert CommitTimes(store, 4).first_after(times[3]) == times[3]


def test_a_history_that_does_not_reach_back_gives_the_compaction_itself(
    history: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = snapshots.read(history.store, 2).time_millis
    monkeypatch.setattr(snapshots, "list_ids", lambda _: [2, 3, 4, 5])
    assert CommitTimes(history.store, 5).first_after(first - 100_000) == first - 100_000
    assert CommitTimes(history.store, 5).first_after(first) == snapshots.read(history.store, 3).time_millis
    monkeypatch.setattr(CommitTimes, "MOST_READ", 0)
    assert CommitTimes(history.store, 5).first_after(first) == first


@pytest.mark.parametrize(
    ("options", "level"),
    [
        ({}, 5),
        ({"num-levels": "3"}, 2),
        ({"deletion-vectors.enabled": "true"}, 5),
        ({"deletion-vectors.enabled": "true", "deletion-vectors.bitmap64": "true"}, 5),
        (
            {
                "deletion-vectors.enabled": "true",
                "deletion-vectors.bitmap64": "true",
                "metadata.iceberg.format-version": "3",
            },
            1,
        ),
    ],
)
def test_levels_that_iceberg_readers_see(options: dict[str, str], level: int) -> None:
    assert shown_from_level(TableOptions(options, "db.t", stored=True)) == level
