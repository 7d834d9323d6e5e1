"""Arguments and options choose the version, or are refused: one that is ignored would answer another question than the one asked.

What each of them answers was asked of Java Paimon 1.4.2.
"""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

import pyarrow as pa
import pytest

from lsm_core import Catalog, Schema, Table
from lsm_core.errors import ColumnNotFound, InvalidOption, SnapshotNotFound, TableNotFound, UnsupportedFeature
from lsm_core.format.schema import DataField
from lsm_core.format.snapshot import CommitKind
from lsm_core.metadata import snapshots, tags
from lsm_core.metadata.branches import open_branch
from lsm_core.metadata.store import TableStore, write_schema
from lsm_core.types import parse
from tests.support.stores import make_store, write


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """Three snapshots; snapshot n holds rows 1 to n."""
    catalog = Catalog(tmp_path)
    catalog.create_database("db")
    made = catalog.create_table("db.t", Schema(pa.schema([("a", pa.int32())])))
    for number in (1, 2, 3):
        made.write(pa.table({"a": pa.array([number], pa.int32())}))
    return made


def rows(table: Table, **options: str) -> list[int]:
    """What is read with ``options``, in which "_" stands for "-"."""
    named = {f"scan.{key.replace('_', '-')}": text for key, text in options.items()}
    return sorted(table.copy(named).to_arrow().column("a").to_pylist())


def test_an_option_pins_the_snapshot(table: Table) -> None:
    assert rows(table, snapshot_id="2") == [1, 2]
    assert rows(table, snapshot_id="1", mode="from-snapshot-full") == [1]
    assert rows(table, mode="latest-full") == [1, 2, 3]


def test_an_argument_wins_over_the_option(table: Table) -> None:
    assert table.copy({"scan.snapshot-id": "1"}).to_arrow(snapshot_id=3).num_rows == 3


def test_none_takes_a_pinned_version_away(table: Table) -> None:
    pinned = table.copy({"scan.snapshot-id": "1"})
    freed = pinned.copy({"scan.snapshot-id": None})
    assert (pinned.to_arrow().num_rows, freed.to_arrow().num_rows) == (1, 3)
    elsewhere = TableStore.from_json(freed.store.to_json())  # as Spark's tasks open it
    assert Table(elsewhere).to_arrow().num_rows == 3
    assert Table(pinned.store.copy({"scan.snapshot-id": None}).refresh()).to_arrow().num_rows == 3
    stored = Catalog(Path(table.store.root).parent.parent).create_table(
        "db.u", Schema(pa.schema([("a", pa.int32())]), options={"scan.snapshot-id": "1"})
    )
    for number in (1, 2):
        stored.write(pa.table({"a": pa.array([number], pa.int32())}))
    assert (stored.to_arrow().num_rows, stored.copy({"scan.snapshot-id": None}).to_arrow().num_rows) == (1, 2)


def test_a_snapshot_out_of_range_is_not_found(table: Table) -> None:
    for number in ("0", "4"):
        with pytest.raises(SnapshotNotFound):
            rows(table, snapshot_id=number)


CONTRADICTIONS = [
    ({"mode": "full", "snapshot_id": "1"}, "scan.mode"),
    ({"mode": "latest", "tag_name": "one"}, "scan.mode"),
    ({"mode": "from-snapshot"}, "scan.mode"),
    ({"mode": "incremental"}, "incremental-between"),
    ({"mode": "from-timestamp", "snapshot_id": "1"}, "scan.mode"),
    ({"mode": "from-snapshot-full", "tag_name": "one"}, "scan.mode"),
    ({"snapshot_id": "1", "tag_name": "one"}, "scan.tag-name"),
    ({"timestamp_millis": "1", "watermark": "1"}, "only one of"),
    ({"timestamp": "yesterday"}, "scan.timestamp"),
]


@pytest.mark.parametrize(("options", "named"), CONTRADICTIONS)
def test_wishes_that_contradict_each_other_are_named(table: Table, options: dict[str, str], named: str) -> None:
    with pytest.raises(InvalidOption, match=named):
        rows(table, **options)


def test_at_most_one_argument_names_the_version(table: Table) -> None:
    with pytest.raises(InvalidOption, match="only one of snapshot_id, tag"):
        table.to_arrow(snapshot_id=1, tag="one")
    with pytest.raises(InvalidOption, match="timestamp_ms"):
        table.to_arrow(timestamp_ms="now")  # type: ignore[arg-type]


def publish(table: Table, kind: str, *numbers: int, **changes: object) -> None:
    """Give snapshots other members, as a writer at another time would have; ``kind`` "tag" copies one to a tag first."""
    store = table.store
    for number in numbers:
        snapshot = dataclasses.replace(snapshots.read(store, number), **changes)  # type: ignore[arg-type]
        path = Path(store.snapshot_path(number))
        if kind.startswith("tag "):
            path = Path(tags.tag_path(store, kind.removeprefix("tag ")))
            path.parent.mkdir(exist_ok=True)
        path.write_bytes(snapshot.to_json())


def test_a_tag_names_a_version_even_after_its_snapshot_has_expired(table: Table) -> None:
    publish(table, "tag one", 1)
    Path(table.store.snapshot_path(1)).unlink()
    assert rows(table, tag_name="one") == [1]
    assert table.to_arrow(tag="one").num_rows == 1
    assert [split.file_count for split in table.plan_scan(tag="one")] == [1]
    assert sum(batch.num_rows for batch in table.to_batches(tag="one")) == 1
    with pytest.raises(SnapshotNotFound, match=r"no tag 'two'; it has: one"):
        rows(table, tag_name="two")
    with pytest.raises(SnapshotNotFound) as caught:
        rows(table, snapshot_id="1")
    assert caught.value.expired


def test_a_version_is_a_tag_then_a_watermark_then_a_number(table: Table) -> None:
    publish(table, "tag 2", 1)
    publish(table, "tag watermark-7", 3)
    publish(table, "snapshot", 2, 3, watermark=7)
    assert rows(table, version="2") == [1], "the tag called 2, not snapshot 2"
    assert rows(table, version="3", mode="from-snapshot") == [1, 2, 3]
    assert rows(table, version="watermark-7") == [1, 2, 3], "the tag of that name"
    assert rows(table, version="watermark-6") == [1, 2]
    with pytest.raises(SnapshotNotFound, match="'x'"):
        rows(table, version="x")


def test_a_time_names_the_newest_snapshot_that_is_not_younger(table: Table) -> None:
    for number, moment in ((1, 1_000), (2, 2_000), (3, 2_000)):
        publish(table, "snapshot", number, time_millis=moment)
    assert rows(table, timestamp_millis="1000") == rows(table, timestamp_millis="1999") == [1]
    assert rows(table, timestamp_millis="2000", mode="from-timestamp") == [1, 2, 3], "of two at once the newer one"
    assert table.to_arrow(timestamp_ms=9_999).num_rows == 3
    assert rows(table, timestamp="2090-01-01 00:00:00") == rows(table, timestamp="2090-01-01") == [1, 2, 3]
    with pytest.raises(SnapshotNotFound, match=r"timestamp 999 \(ms\): the earliest is of 1000"):
        table.to_arrow(timestamp_ms=999)


def test_a_watermark_names_the_oldest_snapshot_that_has_reached_it(table: Table) -> None:
    publish(table, "snapshot", 2, watermark=1_000)
    publish(table, "snapshot", 3, watermark=2_000)
    assert rows(table, watermark="0") == rows(table, watermark="1000") == [1, 2]
    assert rows(table, watermark="1001") == [1, 2, 3]
    assert table.to_arrow(watermark=-5).num_rows == 2
    with pytest.raises(SnapshotNotFound, match="watermark 2001"):
        rows(table, watermark="2001")


def test_the_newest_compacted_version_is_read_until_there_is_none(table: Table) -> None:
    assert rows(table, mode="compacted-full") == [1, 2, 3]
    publish(table, "snapshot", 1, commit_kind=CommitKind.COMPACT)
    publish(table, "snapshot", 2, commit_kind=CommitKind.COMPACT, commit_identifier=7)
    assert rows(table, mode="compacted-full") == [1, 2]
    assert rows(table.copy({"full-compaction.delta-commits": "2"}), mode="compacted-full") == [1], "2 is not a full one"


def test_old_versions_are_read_with_the_schema_of_their_time(tmp_path: Path) -> None:
    """Java: a named version has the columns of its time, `compacted-full` and the newest version those of today."""
    store = make_store(tmp_path, {"k": "INT NOT NULL", "v": "INT"}, ["k"], (), {"bucket": "1"})
    write(store, pa.table({"k": [1], "v": [10]}))
    fields = (
        store.schema.fields[0],
        dataclasses.replace(store.schema.fields[1], name="w"),
        DataField(2, "x", parse("INT")),
    )
    following = dataclasses.replace(store.schema, id=1, fields=fields, highest_field_id=2)
    assert write_schema(store.file_io, store.root, following)
    today = store.refresh()
    table = Table(today)
    assert table.to_arrow(snapshot_id=1).to_pylist() == [{"k": 1, "v": 10}]
    assert table.copy({"scan.version": "1"}).to_arrow(columns=["v"], filter=[("v", ">", 3)]).num_rows == 1
    assert table.to_arrow().to_pylist() == [{"k": 1, "w": 10, "x": None}]
    assert table.copy({"scan.mode": "compacted-full"}).to_arrow().column_names == ["k", "w", "x"]
    with pytest.raises(ColumnNotFound, match="'w'"):
        table.to_arrow(columns=["w"], snapshot_id=1)


def test_a_branch_has_versions_of_its_own(tmp_path: Path) -> None:
    store = make_store(tmp_path, {"k": "INT NOT NULL", "v": "INT"}, ["k"], (), {"bucket": "1"})
    write(store, pa.table({"k": [1], "v": [10]}))
    place = tmp_path / "branch" / "branch-b"
    for kind in ("schema", "snapshot"):
        shutil.copytree(tmp_path / kind, place / kind)
    branch = open_branch(store, "b")
    write(branch, pa.table({"k": [2], "v": [20]}))
    assert sorted(Table(branch).to_arrow().column("k").to_pylist()) == [1, 2]
    assert Table(store).to_arrow().column("k").to_pylist() == [1]
    assert Table(branch).to_arrow(snapshot_id=1).num_rows == 1
    with pytest.raises(SnapshotNotFound):
        Table(store).to_arrow(snapshot_id=2)


@pytest.mark.parametrize(
    ("key", "text"),
    [("scan.creation-time-millis", "1"), ("scan.bucket", "0")],
)
def test_other_reads_are_refused_by_name(table: Table, key: str, text: str) -> None:
    with pytest.raises(UnsupportedFeature, match=key):
        table.copy({key: text}).to_arrow()


def test_a_table_that_was_dropped_or_renamed_is_not_an_empty_one(table: Table, tmp_path: Path) -> None:
    catalog = Catalog(tmp_path)
    catalog.rename_table("db.t", "db.u")
    with pytest.raises(TableNotFound, match=r"db\.t was dropped or renamed"):
        table.to_arrow()
    renamed = catalog.table("db.u")
    assert renamed.to_arrow().num_rows == 3
    catalog.drop_table("db.u")
    with pytest.raises(TableNotFound):
        renamed.to_batches()
