"""Streams of changes: where they begin, how they go on, what they remember, and that they hold little at a time."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from lsm_core import Catalog, Schema, SchemaChange, Table
from lsm_core.clock import FixedClock
from lsm_core.errors import ColumnNotFound, CorruptFile, InvalidData, InvalidOption, InvalidSchema, SnapshotNotFound
from lsm_core.metadata import consumers
from lsm_core.read.changes import ChangeBatch, StreamScan, changed_rows, stream
from tests.support.samples import one_in

NOW = 1_800_000_000_000
SCHEMA = pa.schema([pa.field("k", pa.int32(), nullable=False), ("v", pa.int64())])


def make(tmp_path: Path, keys: tuple[str, ...] = ("k",), **options: str) -> Table:
    catalog = Catalog(tmp_path, clock=FixedClock(NOW))
    catalog.create_database("db", ignore_if_exists=True)
    return catalog.create_table("db.t", Schema(SCHEMA, keys, (), {"bucket": "1" if keys else "-1", **options}))


def put(table: Table, *rows: tuple[str, int, int | None], **arguments: Any) -> None:
    data = pa.table({"k": [k for _, k, _ in rows], "v": [v for _, _, v in rows]}, SCHEMA)
    table.write(data, row_kinds=pa.array([kind for kind, _, _ in rows]), **arguments)


def told(batch: ChangeBatch | None) -> list[tuple[str, int, int | None]]:
    assert batch is not None
    return sorted(tuple(row.values()) for row in batch.to_arrow().to_pylist())


def all_of(scan: StreamScan) -> list[tuple[int, list[tuple[str, int, int | None]]]]:
    found = []
    while (batch := scan.next()) is not None:
        found.append((batch.snapshot_id, told(batch)))
    return found


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """Three commits to keys 1 to 3."""
    made = make(tmp_path)
    put(made, ("+I", 1, 10), ("+I", 2, 20))
    put(made, ("+U", 1, 11), ("-D", 2, 20))
    put(made, ("+I", 3, 30))
    return made


SECOND = (2, [("+U", 1, 11), ("-D", 2, 20)])
THIRD = (3, [("+I", 3, 30)])


def test_the_newest_version_comes_first_then_what_changes(table: Table) -> None:
    scan = table.new_stream_scan()
    assert scan.checkpoint() is None
    first = scan.next()
    assert first is not None
    assert first.initial
    assert told(first) == [("+I", 3, 30), ("+U", 1, 11)]
    assert first.table.schema.equals(scan.arrow_schema)
    assert scan.checkpoint() == 4
    assert scan.next() is None
    put(table, ("-D", 1, 11))
    assert all_of(scan) == [(4, [("-D", 1, 11)])]


def test_a_stream_opened_on_an_empty_table_misses_nothing(tmp_path: Path) -> None:
    made = make(tmp_path)
    scans = [made.new_stream_scan(), made.copy({"scan.mode": "latest"}).new_stream_scan(), made.new_stream_scan("c", 1)]
    assert [scan.next() for scan in scans] == [None] * 3
    put(made, ("+I", 1, 1))
    assert [all_of(scan) for scan in scans] == [[(1, [("+I", 1, 1)])]] * 3


def test_latest_is_what_was_latest_when_the_stream_was_opened(table: Table) -> None:
    scan = table.copy({"scan.mode": "latest"}).new_stream_scan()
    put(table, ("+I", 4, 40))
    assert all_of(scan) == [(4, [("+I", 4, 40)])]


def test_it_goes_on_where_it_was_restored(table: Table) -> None:
    scan = table.new_stream_scan(from_snapshot=1)
    scan.next()
    mark = scan.checkpoint()
    assert all_of(scan) == [SECOND, THIRD]
    scan.restore(mark)
    assert all_of(scan) == [SECOND, THIRD]
    other = table.new_stream_scan()
    other.restore(3)
    assert all_of(other) == [THIRD]
    other.restore(None)
    assert other.next().initial  # type: ignore[union-attr]


def test_a_consumer_goes_on_after_its_last_checkpoint(table: Table) -> None:
    scan = table.new_stream_scan("job", 1)
    scan.next()
    scan.next()
    assert table.new_stream_scan("job", 2).next().snapshot_id == 2  # type: ignore[union-attr]
    assert scan.checkpoint() == 3
    assert consumers.list_consumers(table.store) == {"job": 3}
    assert all_of(table.new_stream_scan("job", 1)) == [THIRD]
    assert all_of(table.copy({"consumer-id": "job"}).new_stream_scan()) == [THIRD]
    ignoring = table.copy({"consumer.ignore-progress": "true"})
    assert ignoring.new_stream_scan("job").next().initial  # type: ignore[union-attr]
    assert table.forget_consumer("job")
    assert not table.forget_consumer("job")
    with pytest.raises(InvalidData, match="plain name"):
        table.forget_consumer("../job")


def test_a_consumer_holds_back_expiry(table: Table) -> None:
    scan = table.new_stream_scan("job", 1)
    scan.next()
    scan.checkpoint()
    assert table.expire_snapshots(retain_max=1, retain_min=1, older_than_ms=NOW + 1).expired == (1,)
    assert all_of(scan) == [SECOND, THIRD]


@pytest.mark.parametrize("name", ["../job", "a/b", "", "."])
def test_a_consumer_id_is_no_path(table: Table, name: str) -> None:
    with pytest.raises(InvalidData):
        table.new_stream_scan(name)


def test_a_stream_that_fell_behind_or_ran_ahead_is_told_so(table: Table) -> None:
    scan = table.new_stream_scan()
    scan.restore(5)
    with pytest.raises(SnapshotNotFound, match="rolled back") as ahead:
        scan.next()
    assert not ahead.value.expired
    table.expire_snapshots(retain_max=1, retain_min=1, older_than_ms=NOW + 1)
    scan.restore(2)
    with pytest.raises(SnapshotNotFound, match="expired") as behind:
        scan.next()
    assert behind.value.expired
    assert all_of(table.new_stream_scan(from_snapshot=1)) == [THIRD]


@pytest.mark.parametrize("whole", [True, False])
def test_commits_after_a_rollback_are_not_read_on_top_of_the_removed_ones(table: Table, whole: bool) -> None:
    """Snapshots 2 and 3 are replaced; a stream that has read the first ones never reads 4 without their successors."""
    scan = table.new_stream_scan(from_snapshot=None if whole else 1)
    assert [number for number, _ in all_of(scan)][-1] == 3
    table.rollback_to(1)
    for key in (7, 8, 9):
        put(table, ("+I", key, 0))
    for _ in range(2):
        with pytest.raises(
            SnapshotNotFound, match=r"table db\.t was rolled back .* its snapshot 3 .* open a new stream"
        ):
            scan.next()
    scan.restore(2)
    assert [number for number, _ in all_of(scan)] == [2, 3, 4]


def test_a_stream_of_a_branch_that_was_made_anew_is_told_so(table: Table) -> None:
    table.create_tag("first", snapshot_id=1)
    catalog = Catalog(Path(table.store.root).parent.parent, clock=FixedClock(NOW))

    def branch() -> Table:
        table.create_branch("b", from_tag="first")
        return catalog.table("db.t$branch_b")

    put(branch(), ("+I", 5, 5))
    scan = catalog.table("db.t$branch_b").new_stream_scan(from_snapshot=1)
    assert [number for number, _ in all_of(scan)] == [1, 2]
    table.delete_branch("b")
    again = branch()
    for key in (7, 8):
        put(again, ("+I", key, 0))
    with pytest.raises(SnapshotNotFound, match="rolled back or recreated"):
        scan.next()


@pytest.mark.parametrize("expired", [True, False])
def test_a_snapshot_that_expires_while_it_is_read_is_no_corrupt_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, expired: bool
) -> None:
    made = make(tmp_path, bucket="2")
    put(made, *(("+I", k, k) for k in range(40)))
    put(made, ("+I", 99, 1))
    monkeypatch.setattr(stream, "_BATCH_BYTES", 10)
    monkeypatch.setattr("lsm_core.read.changes.changed_rows._MOST_ROWS", 1)
    scan = made.new_stream_scan(from_snapshot=1)
    assert scan.next().snapshot_id == 1  # type: ignore[union-attr]
    for path in Path(made.store.root).rglob("*.parquet"):
        path.unlink()
    if expired:
        Path(made.store.snapshot_path(1)).unlink()
    with pytest.raises(SnapshotNotFound if expired else CorruptFile) as caught:
        all_of(scan)
    assert getattr(caught.value, "expired", False) == expired


def test_a_snapshot_with_many_rows_comes_in_parts(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts of one snapshot, held one at a time; until the last the checkpoint stays at the snapshot."""
    monkeypatch.setattr(stream, "_BATCH_BYTES", 100_000)
    for start in (0, 20_000):
        put(table, *(("+I", k, k) for k in range(start, start + 20_000)))
    monkeypatch.setattr("lsm_core.read.changes.changed_rows._MOST_ROWS", 4_096)
    scan = table.new_stream_scan("slow", from_snapshot=4)
    parts = []
    while (batch := scan.next()) is not None:
        assert batch.table.nbytes <= 100_000
        assert scan.checkpoint() == batch.snapshot_id + batch.last
        parts.append((batch.snapshot_id, batch.table.num_rows, batch.last))
    for number in (4, 5):
        mine = [(rows, last) for snapshot, rows, last in parts if snapshot == number]
        assert sum(rows for rows, _ in mine) == 20_000
        assert [last for _, last in mine] == [False] * (len(mine) - 1) + [True]
        assert len(mine) > 4


def test_an_interrupted_snapshot_comes_again_whole(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "_BATCH_BYTES", 10)
    monkeypatch.setattr("lsm_core.read.changes.changed_rows._MOST_ROWS", 1)
    scan = table.new_stream_scan(from_snapshot=2)
    assert not scan.next().last  # type: ignore[union-attr]
    mark = scan.checkpoint()
    scan.restore(mark)
    assert mark == 2
    assert [rows for number, rows in all_of(scan) if number == 2] == [[("+U", 1, 11)], [("-D", 2, 20)]]


def test_columns_and_filters_apply_to_each_changed_row(table: Table) -> None:
    scan = table.new_stream_scan(from_snapshot=1, columns=["v"], filter=[("k", ">", 1)])
    found = []
    while (batch := scan.next()) is not None:
        found.append((batch.snapshot_id, batch.row_kinds.to_pylist(), batch.table.to_pydict()))
    assert found == [(1, ["+I"], {"v": [20]}), (2, ["-D"], {"v": [20]}), (3, ["+I"], {"v": [30]})]
    by_position = table.new_stream_scan(from_snapshot=1, columns=["v"], filter=pc.field(0) == 3)
    assert [batch.snapshot_id for batch in iter(by_position.next, None)] == [3]
    by_value = table.new_stream_scan(filter=[("v", "<", 20)])
    assert told(by_value.next()) == [("+U", 1, 11)]
    assert table.new_stream_scan(from_snapshot=1, columns=[]).next().row_kinds.to_pylist() == ["+I", "+I"]  # type: ignore[union-attr]
    with pytest.raises(ColumnNotFound):
        table.new_stream_scan(columns=["w"])


def test_young_snapshots_wait(table: Table) -> None:
    late = table.copy({"streaming.read.snapshot.delay": "1 h"})
    assert late.new_stream_scan(from_snapshot=1).next() is None
    assert late.new_stream_scan().next().initial  # type: ignore[union-attr]
    old = Table(late.store.copy({"streaming.read.snapshot.delay": "0 s"}))
    assert len(all_of(old.new_stream_scan(from_snapshot=1))) == 3


@pytest.mark.parametrize(
    "options",
    [
        {"scan.tag-name": "x"},
        {"scan.watermark": "1"},
        {"scan.version": "x"},
        {"incremental-between": "1,2"},
        {"scan.mode": "latest", "scan.snapshot-id": "1"},
    ],
)
def test_what_no_stream_can_begin_with_is_refused_at_once(table: Table, options: dict[str, str]) -> None:
    with pytest.raises(InvalidOption):
        table.copy(options).new_stream_scan()


def test_overwrites_count_only_where_asked_for(tmp_path: Path) -> None:
    keyed = make(tmp_path / "keyed")
    put(keyed, ("+I", 1, 1), ("+I", 2, 2))
    put(keyed, ("+I", 1, 9), overwrite=True)
    assert len(all_of(keyed.new_stream_scan(from_snapshot=1))) == 1
    told_all = keyed.copy({"streaming-read-overwrite": "true"}).new_stream_scan(from_snapshot=2)
    assert all_of(told_all) == [(2, [("+I", 1, 9), ("-D", 1, 1), ("-D", 2, 2)])]
    plain = make(tmp_path / "plain", ())
    with pytest.raises(InvalidOption, match="streaming-read-append-overwrite"):
        plain.copy({"streaming-read-overwrite": "true"}).new_stream_scan()


@pytest.mark.parametrize("producers", [("input", "lookup"), ("lookup", "input"), ("full-compaction", "input")])
def test_changes_stay_those_of_the_producer_that_told_them(tmp_path: Path, producers: tuple[str, str]) -> None:
    """A table that is given another producer keeps what the one before had written: its stream tells it all, as Java's does."""
    made = make(tmp_path, **{"changelog-producer": producers[0]})
    for value in (10, 11):
        put(made, ("+I", 1, value))
        made.compact(full=True)
    catalog = Catalog(tmp_path, clock=FixedClock(NOW))
    catalog.alter_table("db.t", [SchemaChange.set_option("changelog-producer", producers[1])])
    made = catalog.table("db.t")
    put(made, ("+I", 1, 12))
    made.compact(full=True)
    latest = made.latest_snapshot()
    assert latest is not None
    changes = [change for _, rows in all_of(made.new_stream_scan(from_snapshot=1)) for change in rows]
    raw = producers[0] == "input"
    before = [("+I", 1, 10), ("+I", 1, 11)] if raw else [("+I", 1, 10), ("+U", 1, 11), ("-U", 1, 10)]
    assert changes == [*before, *([("+U", 1, 12), ("-U", 1, 11)] if raw else [("+I", 1, 12)])]
    between = made.copy({"incremental-between-scan-mode": "changelog"}).incremental(0, latest.id)
    assert between.column("v").to_pylist().count(12) == 1
    assert between.num_rows == len(changes)


@pytest.mark.parametrize("producer", one_in(4, ["none", "lookup", "input", "full-compaction"], 1))
def test_applied_by_key_changes_give_the_table_where_keys_move(tmp_path: Path, producer: str) -> None:
    """Within a snapshot nothing that takes a key away comes after what puts it elsewhere, and a key's changes keep their order."""
    catalog = Catalog(tmp_path / "wh")
    catalog.create_database("db")
    fields = pa.schema([pa.field("p", pa.string(), nullable=False), pa.field("k", pa.int64(), nullable=False)])
    options = {"dynamic-bucket.target-row-num": "5", "changelog-producer": producer, "write-only": "true"}
    table = catalog.create_table("db.t", Schema(fields.append(pa.field("v", pa.int64())), ["k"], ["p"], options))
    stream, chance = table.new_stream_scan(from_snapshot=1), random.Random(producer)
    held: dict[int, tuple[str, int]] = {}
    versions = [held]
    for number in range(5):
        with table.new_write() as writer:
            for part in range(2):  # a key may move, and move back, within one commit
                keys = chance.sample(range(24), 12)
                rows = {"p": [chance.choice("anz") for _ in keys], "k": keys, "v": [10 * number + part for _ in keys]}
                kinds = [chance.choice(["+I", "+I", "-D"]) if number else "+I" for _ in keys]
                writer.write(pa.table(rows), pa.array(kinds))
            table.new_commit().commit(writer.prepare_commit())
        if producer in ("lookup", "full-compaction"):
            table.copy({"write-only": "false"}).compact(full=producer == "full-compaction")
        seen = 0
        while (batch := stream.next()) is not None:
            for row in batch.to_arrow().to_pylist():
                seen += 1
                held = {key: value for key, value in held.items() if key != row["k"]}
                if row["_ROW_KIND"] in ("+I", "+U"):
                    held[row["k"]] = (row["p"], row["v"])
        assert seen and held == {row["k"]: (row["p"], row["v"]) for row in table.to_arrow().to_pylist()}
        versions.append(held)
    assert any(versions[1].get(key, value)[0] != value[0] for key, value in held.items())
    changes = table.incremental(2, len(table.snapshots()), "diff").to_pylist()
    replayed: dict[int, tuple[str, int]] = {
        row["k"]: (row["p"], row["v"]) for row in table.to_arrow(snapshot_id=2).to_pylist()
    }
    for row in changes:
        replayed.pop(row["k"], None)
        if row["_ROW_KIND"] in ("+I", "+U"):
            replayed[row["k"]] = (row["p"], row["v"])
    assert replayed == held


def test_changes_of_one_partition_are_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    catalog = Catalog(tmp_path / "wh")
    catalog.create_database("db")
    fields = pa.schema([pa.field("p", pa.string(), nullable=False), pa.field("k", pa.int64(), nullable=False)])
    table = catalog.create_table("db.t", Schema(fields, ["k"], ["p"], {}))
    stream = table.new_stream_scan(from_snapshot=1)
    table.write({"p": ["a", "a"], "k": [1, 2]})
    table.write({"p": ["a"], "k": [1]}, row_kinds="-D")
    opened: list[str] = []
    read = changed_rows.open_kv
    monkeypatch.setattr(changed_rows, "open_kv", lambda *given, **more: opened.append("") or read(*given, **more))
    assert [(batch.snapshot_id, batch.row_kinds.to_pylist()) for batch in iter(stream.next, None) if batch] == [
        (1, ["+I", "+I"]),
        (2, ["-D"]),
    ]
    assert len(opened) == 2


@pytest.mark.parametrize("producer", ["none", "input"])
@pytest.mark.parametrize(
    ("changes", "row", "said"),
    [
        (["add"], {"k": 2, "v": 7, "w": "more"}, None),
        (["rename"], {"k": 2, "value": 7}, None),
        (["widen"], {"k": 2, "v": 7}, None),
        (
            ["widen"],
            {"k": 2, "v": 2**40 + 7},
            "column 'v' was changed from INT to BIGINT since .*: 1099511627783 is no INT",
        ),
        (["drop"], {"k": 2}, None),  # null, as Java reads it
        (["drop", "again"], {"k": 2, "v": 7}, "column 'v' was dropped and added again"),
    ],
)
def test_a_stream_whose_columns_change_tells_right_rows_or_why_it_cannot(
    tmp_path: Path, producer: str, changes: list[str], row: dict[str, Any], said: str | None
) -> None:
    known = {
        "add": SchemaChange.add_column("w", pa.string()),
        "rename": SchemaChange.rename_column("v", "value"),
        "widen": SchemaChange.update_type("v", pa.int64()),
        "drop": SchemaChange.drop_column("v"),
        "again": SchemaChange.add_column("v", pa.int32()),
    }
    catalog = Catalog(tmp_path)
    catalog.create_database("db")
    fields = pa.schema([pa.field("k", pa.int32(), nullable=False), ("v", pa.int32())])
    made = catalog.create_table("db.t", Schema(fields, ("k",), (), {"bucket": "1", "changelog-producer": producer}))
    made.write(pa.table({"k": [1], "v": [1]}, fields))
    scan, keys = made.new_stream_scan(), made.new_stream_scan(columns=["k"])
    assert told(scan.next()) == told(made.new_stream_scan().next()) == [("+I", 1, 1)]
    assert told(keys.next()) == [("+I", 1)]
    for change in changes:  # a schema of its own each, as ALTER TABLE makes them
        catalog.alter_table("db.t", [known[change]])
    altered = catalog.table("db.t")
    altered.write(pa.Table.from_pylist([row], altered.schema.arrow_schema))
    if said is None:
        assert told(scan.next()) == [("+I", 2, 7 if len(row) > 1 else None)]
    else:
        for _ in range(2):  # it stays where it is
            with pytest.raises(InvalidSchema, match=f"table db.t: {said}.*start the stream again"):
                scan.next()
    assert told(keys.next()) == [("+I", 2)]  # what it does not read may change
    later = altered.new_stream_scan()
    later.restore(scan.checkpoint())
    found = later.next()
    assert found is None if said is None else found is not None and found.table.to_pylist() == [row]


def test_a_stream_since_a_time_without_an_older_snapshot_reads_the_files_created_since(tmp_path: Path) -> None:
    """As in Java: the version before that time has expired, and files of that time are not in the stream."""
    make(tmp_path)
    for number in range(3):
        put(Catalog(tmp_path, clock=FixedClock(NOW + 10 * number)).table("db.t"), ("+I", number, number), compact=False)

    def since(time_ms: int) -> list[tuple[int, list[tuple[str, int, int | None]]]]:
        table = Catalog(tmp_path, clock=FixedClock(NOW + 99)).table("db.t")
        options = {"scan.mode": "from-creation-timestamp", "scan.creation-time-millis": str(time_ms)}
        return all_of(table.copy(options).new_stream_scan())

    second, third = [("+I", 1, 1)], [("+I", 2, 2)]
    assert since(NOW + 5) == [(2, second), (3, third)]
    assert since(NOW + 50) == []
    assert since(0) == [(3, [("+I", 0, 0), *second, *third])]
    Catalog(tmp_path).table("db.t").expire_snapshots(retain_max=2, retain_min=2, older_than_ms=NOW + 99)
    assert since(NOW + 5) == [(3, [*second, *third])]
    assert since(NOW + 15) == [(3, third)]
