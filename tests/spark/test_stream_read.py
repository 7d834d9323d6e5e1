"""What a stream of Spark reads of a table: the same rows as `new_stream_scan`, in epochs that come out the same when they are run again."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from lsm_core import Catalog, SchemaChange, Table
from lsm_core.errors import (
    CorruptFile,
    InvalidOption,
    InvalidSchema,
    SnapshotNotFound,
    TableNotFound,
    UnsupportedFeature,
)
from lsm_core.metadata import consumers
from lsm_core.read.changes import spans
from lsm_core.read.changes.stream import Follower
from lsm_core.spark import spark_stream_read
from lsm_core.spark.data_source import TableSource
from lsm_core.table import validation
from tests.spark.streams import FIELDS, epochs, place_of, reader, rows
from tests.spark.tables import make_table
from tests.support.samples import one_in

pytestmark = pytest.mark.spark
LIMITS: list[dict[str, str]] = [
    {},
    {"read__stream__maxFilesPerTrigger": "1"},
    {"read__stream__maxRowsPerTrigger": "3"},
    {"read__stream__maxBytesPerTrigger": "1 b", "read__stream__maxFilesPerTrigger": "5"},
]
STARTS: list[tuple[dict[str, str], list[int]]] = [
    ({"scan__mode": "latest"}, []),
    ({"scan__mode": "latest-full"}, [2, 7, 8, 9]),
    ({"scan__mode": "from-snapshot-full", "scan__snapshot_id": "6"}, [2, 7, 8, 9]),
    ({"scan__snapshot_id": "7"}, [9]),
    ({"scan__timestamp_millis": "0"}, [1, 2, 2, 2, 3, 4, 4, 5, 5, 6, 8, 9]),
]


def change(table: Table, keys: list[int], values: list[str], kinds: list[str] | None = None) -> None:
    """One commit."""
    given = None if kinds is None else pa.array(kinds)
    table.write(pa.table({"k": keys, "v": pa.array(values, pa.string())}, schema=FIELDS), row_kinds=given)


def a_life(root: Path, producer: str, **options: str) -> Table:
    """A table with a history: two commits, a compaction, a delete, an overwrite, two more commits and a compaction."""
    changes = {"bucket": "2", "changelog-producer": producer, **options}
    if producer == "append":
        changes = {}
    table = make_table(root, fields=FIELDS, primary_keys=() if producer == "append" else ("k",), options=changes)
    deletes = producer != "append"
    change(table, [1, 2, 3, 4, 5], list("abcde"))
    change(table, [4, 5, 6], list("xyz"))
    table.compact(full=True) if deletes else None
    change(table, [1, 2], ["", "B"], ["-D", "+I"] if deletes else None)
    table.write(pa.table({"k": [7], "v": ["over"]}, schema=FIELDS), overwrite=True)
    change(table, [8, 2], ["n", "C"])
    change(table, [9], ["m"])
    table.compact(full=True) if deletes else None
    return table


def by_key(found: list[tuple[Any, ...]]) -> dict[int, list[tuple[Any, ...]]]:
    """Rows of each key in their order, which is all that a stream keeps."""
    result = defaultdict(list)
    for row in found:
        result[row[1]].append(row)
    return dict(result)


def of_scan(table: Table, from_snapshot: int | None = None) -> list[tuple[Any, ...]]:
    """What the engine's own stream tells."""
    scan, records = table.new_stream_scan(from_snapshot=from_snapshot), []
    while (batch := scan.next()) is not None:
        records += list(zip(*batch.to_arrow().to_pydict().values(), strict=True))
    return records


@pytest.mark.parametrize("producer", one_in(2, ["none", "input", "append", "lookup"], 1))
def test_epochs_tell_what_the_stream_scan_tells_and_the_same_again(tmp_path: Path, producer: str) -> None:
    table = a_life(tmp_path, producer)
    newest = table.latest_snapshot()
    assert newest is not None
    for start in ({}, {"scan__mode": "from-snapshot", "scan__snapshot_id": "1"}):
        expected = of_scan(table, 1 if start else None)
        for limits in LIMITS:
            given = {"read__changelog": "true", **start, **limits}
            source = reader(table, **given)
            seen = []
            for epoch in epochs(source):
                json.dumps(epoch)
                tasks = rows(source, epoch)
                assert [by_key(task) for task in tasks] == [
                    by_key(task) for task in rows(reader(table, **given), epoch)
                ]
                keys = [key for task in tasks for key in {row[1] for row in task}]
                assert producer == "append" or len(keys) == len(set(keys))  # a key's rows are in one task
                seen.append([row for task in tasks for row in task])
                if "read__stream__maxFilesPerTrigger" in limits:
                    assert len(tasks) <= 1
            assert by_key([row for task in seen for row in task]) == by_key(expected), (start, limits)
            assert not limits or len(seen) > 1 or (producer == "append" and not start)  # small files share a split
            if "read__stream__maxRowsPerTrigger" in limits:
                assert max(map(len, seen)) <= 5  # a file of five rows is taken alone
    whole = list(epochs(reader(table, read__stream__maxFilesPerTrigger="1"), everything=True))
    assert len(whole) == 1
    assert whole[0][1]["snapshot"] == newest.id + 1


def test_without_kinds_rows_that_are_no_more_are_left_out(tmp_path: Path) -> None:
    table = a_life(tmp_path, "input")
    source = reader(table, scan__mode="from-snapshot", scan__snapshot_id="3", columns="v,k", filter='[["k", "<", 9]]')
    found = [row for epoch in epochs(source) for item in rows(source, epoch) for row in item]
    assert sorted(found) == [("B", 2), ("C", 2), ("n", 8)]


def test_where_a_stream_begins(tmp_path: Path) -> None:
    table = a_life(tmp_path, "none")
    ends = []
    for options, keys in STARTS:
        source = reader(table, **options)
        at, found = source.initialOffset(), []
        for epoch in epochs(source, at):
            found += [row[0] for item in rows(source, epoch) for row in item]
            at = epoch[1]
        assert sorted(found) == keys
        ends.append((source, at))
    change(table, [50], ["later"])
    for source, at in ends:
        assert [rows(source, epoch) for epoch in epochs(source, at)] == [[[(50, "later")]]]


def test_a_table_without_a_snapshot_is_waited_for(tmp_path: Path) -> None:
    table = make_table(tmp_path, fields=FIELDS)
    source = reader(table)
    begin = source.initialOffset()
    assert list(epochs(source, begin)) == []
    table.write(pa.table({"k": [1], "v": ["a"]}, schema=FIELDS), overwrite=True)
    change(table, [2], ["b"])
    again = reader(table)  # from a checkpoint that knows nothing of a beginning
    records = [rows(again, epoch) for epoch in epochs(again, begin)]
    assert [row for item in records for part in item for row in part] == [(1, "a"), (2, "b")]


def test_overwrites_that_count_are_told_in_one_task(tmp_path: Path) -> None:
    table = a_life(tmp_path, "none")
    source = reader(table, streaming_read_overwrite="true", read__changelog="true", scan__snapshot_id="5")
    (only,) = epochs(source)
    result = rows(source, only)
    assert len(result) == 1
    assert result[0][-4:] == [("+I", 7, "over"), ("+I", 2, "C"), ("+I", 8, "n"), ("+I", 9, "m")] or sorted(
        result[0][-3:]
    ) == [("+I", 2, "C"), ("+I", 8, "n"), ("+I", 9, "m")]
    assert sorted(result[0][:5]) == [("-D", key, value) for key, value in zip([2, 3, 4, 5, 6], "Bcxyz", strict=True)]


def test_what_is_committed_after_an_available_now_began_is_left_to_the_next(tmp_path: Path) -> None:
    table = a_life(tmp_path, "input")
    source = reader(table, scan__mode="from-snapshot", scan__snapshot_id="6", read__stream__maxFilesPerTrigger="1")
    source.prepareForTriggerAvailableNow()
    change(table, [99], ["late"])
    found = [row for epoch in epochs(source) for item in rows(source, epoch) for row in item]
    assert sorted(found) == [(2, "C"), (8, "n"), (9, "m")]


def test_the_consumer_follows_what_was_committed_and_holds_expiry(tmp_path: Path) -> None:
    table = a_life(tmp_path, "input")
    source = reader(table, consumer_id="job", scan__mode="from-snapshot", scan__snapshot_id="2")
    first, *_ = epochs(reader(table, consumer_id="other", scan__snapshot_id="2", read__stream__maxFilesPerTrigger="1"))
    assert table.consumers() == {} or "job" not in table.consumers()
    source.commit(first[1])
    assert consumers.read_consumer(table.store, "job") == first[1]["snapshot"]
    table.expire_snapshots(retain_max=1, retain_min=1, older_than_ms=2**60)
    assert table.snapshots()[0].id == first[1]["snapshot"]
    going_on = reader(table, consumer_id="job")
    assert next(epochs(going_on))[1]["begun"] == first[1]["snapshot"]
    consumers.write_consumer(table.store, "job", 1)
    with pytest.raises(
        SnapshotNotFound, match=r"db\.t \(consumer 'job'\) cannot begin at snapshot 1, which has expired"
    ):
        next(epochs(reader(table, consumer_id="job")))


def test_a_start_or_a_checkpoint_that_expired_is_named(tmp_path: Path) -> None:
    table = a_life(tmp_path, "none")
    start = {"scan__mode": "from-snapshot", "scan__snapshot_id": "2"}
    (_, old), *_ = epochs(reader(table, **start, read__stream__maxFilesPerTrigger="1"))
    *_, (_, fresh) = epochs(reader(table))
    table.expire_snapshots(retain_max=2, retain_min=1, older_than_ms=2**60)
    with pytest.raises(
        SnapshotNotFound, match="cannot begin at snapshot 2, which has expired: the table keeps 8"
    ) as result:
        next(epochs(reader(table, **start)))
    assert result.value.expired
    with pytest.raises(SnapshotNotFound, match=f"no snapshot {old['snapshot']}: it has expired"):
        next(epochs(reader(table, **start), old))
    change(table, [60], ["new"])
    going_on = reader(table, **start)  # a checkpoint goes on whatever became of the start
    assert [rows(going_on, epoch) for epoch in epochs(going_on, fresh)] == [[[(60, "new")]]]


@pytest.mark.parametrize("options", [{}, {"scan__mode": "latest"}, {"scan__snapshot_id": "6"}])
def test_the_first_epoch_begins_where_it_began_when_it_is_run_again(tmp_path: Path, options: dict[str, str]) -> None:
    table = a_life(tmp_path, "none")
    source = reader(table, **options)
    first, *rest = epochs(source)
    assert not rest
    before = rows(source, first)
    for number in range(3):
        change(table, [number], ["later"])
    again = reader(table, **options)
    assert rows(again, (again.initialOffset(), first[1])) == before
    assert [item for epoch in epochs(again, first[1]) for part in rows(again, epoch) for item in part] == [
        (number, "later") for number in range(3)
    ]


def test_a_whole_version_that_expires_while_it_is_read_is_named(tmp_path: Path) -> None:
    table = a_life(tmp_path, "none")
    (_, begin), *_ = epochs(reader(table, read__stream__maxFilesPerTrigger="1"))
    assert begin["initial"]
    for number in range(3):
        change(table, [number], ["q"])
    table.expire_snapshots(retain_max=1, retain_min=1, older_than_ms=2**60)
    with pytest.raises(SnapshotNotFound, match="expired before the stream had read it as a whole"):
        list(epochs(reader(table), begin))


@pytest.mark.parametrize("where", ["planning", "tasks"])
@pytest.mark.parametrize("start", [{}, {"scan__snapshot_id": "2"}])
def test_a_file_that_expired_is_named_as_an_expiry_and_one_that_is_lost_as_damage(
    tmp_path: Path, where: str, start: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    table = a_life(tmp_path, "none")
    source = reader(table, **start)
    end, *_ = epochs(source)
    monkeypatch.setattr(spans, "_RETRY_SECONDS", 0.0)
    parts = source.partitions(*end)
    lost = parts[0].value[0][2]
    assert lost == (2 if start else 8)
    missing = str(tmp_path / "lost.parquet")

    def is_lost(*_: Any, **__: Any) -> Any:
        raise FileNotFoundError(2, "No such file or directory", missing)

    for name in ("files", "splits") if where == "planning" else ():
        monkeypatch.setattr(Follower, name, is_lost)
    for name in ("file_rows", "split_rows") if where == "tasks" else ():
        monkeypatch.setattr(spark_stream_read, name, is_lost)

    def run() -> None:
        for part in source.partitions(*end) if where == "planning" else parts:
            list(source.read(part))

    with pytest.raises(CorruptFile, match=r"lost\.parquet: the file is missing") as damage:
        run()
    assert damage.value.__notes__, "Spark finds it by its note"
    monkeypatch.setattr(spans.snapshots, "exists", lambda _store, number: number != lost)
    with pytest.raises(SnapshotNotFound, match=f"snapshot {lost} of table db.t expired during the read") as expiry:
        run()
    assert expiry.value.expired and expiry.value.__notes__


def test_the_engines_own_stream_names_a_bare_missing_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = a_life(tmp_path, "none")

    def is_lost(*_: Any) -> Any:
        raise FileNotFoundError(2, "No such file or directory", "/lost.parquet")

    monkeypatch.setattr(Follower, "changes", is_lost)
    with pytest.raises(CorruptFile, match=r"/lost\.parquet: the file is missing"):
        table.new_stream_scan(from_snapshot=7).next()


def test_a_checkpoint_of_another_table_or_history_is_refused(tmp_path: Path) -> None:
    table, other = a_life(tmp_path / "a", "none"), a_life(tmp_path / "b", "none")
    *_, (_, at) = epochs(reader(table))
    with pytest.raises(InvalidOption, match=r"'checkpointLocation' of table db\.t cannot be .*another table"):
        list(epochs(reader(other), at))
    for wrong in ({}, {**at, "snapshot": "9"}, {**at, "more": 1}):
        with pytest.raises(InvalidOption, match="checkpoint of this version"):
            list(epochs(reader(table), wrong))
    table.rollback_to(5)
    with pytest.raises(SnapshotNotFound, match="rolled back or made anew: its snapshot 8 is not the one"):
        list(epochs(reader(table), at))
    for number in range(5):
        change(table, [number], ["again"])
    with pytest.raises(SnapshotNotFound, match="rolled back or made anew"):
        list(epochs(reader(table), at))
    with pytest.raises(SnapshotNotFound, match="rolled back or made anew"):
        reader(table).partitions(at, at)


def test_a_query_whose_table_is_dropped_or_replaced_ends(tmp_path: Path) -> None:
    table = a_life(tmp_path, "input")
    source = reader(table, consumer_id="job", scan__snapshot_id="2")
    *_, (_, at) = epochs(source)
    catalog = Catalog(tmp_path)
    catalog.drop_table("db.t")
    for message in ("was dropped or renamed", "was replaced"):
        with pytest.raises(TableNotFound, match=message):
            source.latestOffset(at, source.getDefaultReadLimit())
        with pytest.raises(TableNotFound, match=message):
            source.commit(at)
        if message == "was dropped or renamed":
            assert not Path(table.store.root).exists()
            a_life(tmp_path, "input")
    assert catalog.table("db.t").consumers() == {}


def test_files_that_were_counted_must_be_the_files_that_are_left_out(tmp_path: Path) -> None:
    table = a_life(tmp_path, "input")
    source = reader(table, scan__snapshot_id="1", read__stream__maxFilesPerTrigger="1")
    first, *_ = epochs(source)
    assert first[1]["files"] == 1
    changed = table.store.copy({"changelog-producer": "none"})
    source.__dict__["_store"] = changed
    with pytest.raises(InvalidOption, match="the options with which snapshot 1 was begun"):
        source.latestOffset(first[1], source.getDefaultReadLimit())
    with pytest.raises(InvalidOption, match="the options with which snapshot 1 was begun"):
        source.partitions(*first)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"read__stream__maxFilesPerTrigger": "0"},
            "maxfilespertrigger' of table db.t cannot be '0'; accepted: a whole",
        ),
        ({"read__stream__maxRowsPerTrigger": "x"}, "maxrowspertrigger"),
        ({"read__stream__maxBytesPerTrigger": "many"}, "maxbytespertrigger"),
        (
            {"read__stream__maxFles": "1"},
            "read.stream.maxfles.*options of streams: read.changelog, read.stream.maxfiles",
        ),
        ({"read__changelog": "yes"}, "accepted: true, false"),
        ({"read__changelog": "true", "snapshot_id": "1"}, "no value in a stream; scan.snapshot-id sets its start"),
        ({"read__changelog": "true", "incremental_between": "1,2"}, "no value in a stream"),
        ({"consumer_id": "../x"}, "consumer id"),
        ({"read__changelog": "true", "columns": "nope"}, "no column 'nope'"),
    ],
)
def test_options_of_a_stream_are_checked(tmp_path: Path, options: dict[str, str], message: str) -> None:
    table = make_table(tmp_path, fields=FIELDS)
    with pytest.raises(Exception, match=message):
        reader(table, **options)


def test_system_tables_and_a_column_in_the_way_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(validation, "ROW_KIND", "")  # another engine may have made such a table
    table = make_table(tmp_path, fields=FIELDS.append(pa.field("_row_kind", pa.string())))
    with pytest.raises(UnsupportedFeature, match=r"read\.changelog beside a column called '_row_kind'"):
        reader(table, read__changelog="true")
    with pytest.raises(UnsupportedFeature, match=r"readStream of a system table.*db\.t\$files"):
        TableSource({**place_of(table), "table": "db.t$files", "consumer-id": "a"}).schema()
    refused = TableSource({**place_of(table), "table": "db.t$files"}).streamReader(StructType())
    for question in (refused.initialOffset, lambda: refused.partitions({}, {}), lambda: refused.latestOffset({}, None)):
        with pytest.raises(UnsupportedFeature, match=r"readStream of a system table.*db\.t\$files"):
            question()


@pytest.mark.parametrize("limits", [{}, {"read__stream__maxFilesPerTrigger": "1"}])
def test_a_query_whose_table_changes_goes_on_from_its_checkpoint_with_the_new_columns(
    tmp_path: Path, limits: dict[str, str]
) -> None:
    """Spark settles a query's columns when it starts: values that do not fit them end the query, and none are lost or cut."""
    fields = pa.schema([pa.field("k", pa.int64(), nullable=False), ("n", pa.int32())])
    table = make_table(tmp_path, fields=fields, options={"bucket": "1"})
    table.write(pa.table({"k": [1], "n": [1]}, fields))
    query, other = reader(table, **limits), reader(table, columns="k", **limits)
    first = next(epochs(query))
    assert rows(query, first) == [[(1, 1)]]
    catalog = Catalog(str(tmp_path))
    catalog.alter_table("db.t", [SchemaChange.rename_column("n", "m"), SchemaChange.add_column("x", pa.string())])
    catalog.table("db.t").write(pa.table({"k": [2], "m": pa.array([2], pa.int32()), "x": ["b"]}))
    second = next(epochs(query, first[1]))
    assert rows(query, second) == [[(2, 2)]]
    catalog.alter_table("db.t", [SchemaChange.update_type("m", pa.int64())])
    catalog.table("db.t").write(pa.table({"k": [3], "m": [2**40 + 7], "x": ["c"]}))
    with pytest.raises(InvalidSchema, match=r"column 'n' was changed from INT to BIGINT .* start the stream again"):
        for epoch in epochs(query, second[1]):
            rows(query, epoch)
    restarted = reader(catalog.table("db.t"), **limits)
    assert [rows(restarted, epoch) for epoch in epochs(restarted, second[1])] == [[[(3, 2**40 + 7, "c")]]]
    assert [row for epoch in epochs(other, first[1]) for item in rows(other, epoch) for row in item] == [(2,), (3,)]
