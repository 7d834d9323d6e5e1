"""The Table facade: writing, reading, overwriting, time travel and system tables, and how bad input is refused."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from lsm_core import Schema, Table
from lsm_core.errors import (
    ColumnNotFound,
    CorruptFile,
    InvalidData,
    InvalidFilter,
    InvalidOption,
    SnapshotNotFound,
    StorageFull,
    UnsupportedFeature,
)
from lsm_core.storage import FileIO, LocalFileIO
from lsm_core.table.system.reader import ReadOnlyTable
from tests.maintenance.tables import catalog, content, keyed, on_disk, rows, strays, with_io


def test_upserts_deletes_and_time_travel(tmp_path: Path) -> None:
    table = keyed(tmp_path)
    assert table.latest_snapshot() is None
    assert table.to_arrow().num_rows == 0
    assert table.write(rows([1, 2, 3])) == 1
    assert table.write(rows([2], v=10)) == 2
    assert table.write(rows([3]), row_kinds=pa.array(["-D"])) == 3
    assert table.write(rows([])) is None
    assert content(table) == [(1, 1, "s1"), (2, 12, "s2")]
    assert len(content(table, 1)) == 3
    assert [s.commit_kind.value for s in table.snapshots()] == ["APPEND"] * 3


def test_reading_chooses_columns_filters_limits_and_streams(tmp_path: Path) -> None:
    table = keyed(tmp_path, bucket="2")
    table.write(rows(range(100)))
    table.write(rows(range(50, 100), v=1000))
    found = table.to_arrow(columns=["v", "k"], filter=[("k", ">=", 90), ("v", ">", 1000)])
    assert found.column_names == ["v", "k"]
    assert sorted(found.column("k").to_pylist()) == list(range(90, 100))
    assert table.to_arrow(filter=pc.field("k") < 3).num_rows == 3
    assert table.to_arrow(limit=7).num_rows == 7
    assert sum(batch.num_rows for batch in table.to_batches(columns=["k"])) == 100
    splits = table.plan_scan()
    assert {split.bucket for split in splits} == {0, 1}
    import pickle

    assert pickle.loads(pickle.dumps(splits)) == splits


def test_overwriting_a_table_a_partition_or_the_partitions_at_hand(tmp_path: Path) -> None:
    plain = keyed(tmp_path)
    plain.write(rows(range(10)))
    plain.write(rows([1]), overwrite=True)
    assert content(plain) == [(1, 1, "s1")]
    table = keyed(tmp_path, partitioned=True, name="db.p")
    table.write(rows([1, 2], dt="a"))
    table.write(rows([3], dt="b"))
    table.write(rows([9], dt="b"), overwrite=True)  # dynamic: only the partitions of the data
    assert [row[0] for row in content(table)] == [1, 2, 9]
    table.write(rows([7], dt="a"), overwrite={"dt": "a"})
    assert [row[0] for row in content(table)] == [7, 9]
    with pytest.raises(InvalidData):
        table.write(rows([7], dt="a"), overwrite={"dt": "b"})
    assert [row[0] for row in content(table)] == [7, 9]
    assert not {name for name in strays(table) if name.startswith("data-")}


def test_batch_writes_commit_when_told(tmp_path: Path) -> None:
    table = keyed(tmp_path)
    with table.new_write() as writer:
        writer.write(rows([1, 2]))
        writer.write(rows([2], v=5))
        messages = writer.prepare_commit()
    assert table.latest_snapshot() is None
    from lsm_core.commit import CommitMessage

    shipped = [CommitMessage.from_bytes(message.to_bytes()) for message in messages]
    assert table.new_commit("me").commit(shipped) == 1
    assert content(table) == [(1, 1, "s1"), (2, 7, "s2")]
    with pytest.raises(RuntimeError), table.new_write() as writer:
        writer.write(rows([5]))
        raise RuntimeError
    assert not strays(table)


@pytest.mark.parametrize(
    ("data", "kinds", "error", "text"),
    [
        ({"k": [1, None], "v": [1, 2], "s": ["a", "b"]}, None, InvalidData, "'k'"),
        ({"k": [1], "v": [1], "s": ["a"], "zz": [1]}, None, ColumnNotFound, "'zz'"),
        ({"k": [1], "v": ["text"], "s": ["a"]}, None, InvalidData, "'v'"),
        ({"k": [1], "v": [1], "s": ["a"]}, ["+X"], InvalidData, r"\+X"),
        ({"k": [1], "v": [1], "s": ["a"]}, ["+I", "+I"], InvalidData, "row_kinds"),
    ],
    ids=["null key", "unknown column", "wrong type", "unknown kind", "too many kinds"],
)
def test_bad_rows_are_refused_and_leave_nothing(
    tmp_path: Path, data: dict[str, list[Any]], kinds: list[str] | None, error: type[Exception], text: str
) -> None:
    table = keyed(tmp_path)
    before = on_disk(table)
    with pytest.raises(error, match=text):
        table.write(pa.table(data), row_kinds=None if kinds is None else pa.array(kinds))
    assert on_disk(table) == before


def test_bad_questions_are_named(tmp_path: Path) -> None:
    table = keyed(tmp_path)
    table.write(rows([1]))
    with pytest.raises(ColumnNotFound, match="'nope'"):
        table.to_arrow(columns=["nope"])
    with pytest.raises(ColumnNotFound, match="'nope'"):
        table.to_arrow(filter=[("nope", "=", 1)])
    with pytest.raises(InvalidFilter, match="~~"):
        table.to_arrow(filter=[("k", "~~", 1)])
    with pytest.raises(SnapshotNotFound, match="no snapshot 7") as caught:
        table.to_arrow(snapshot_id=7)
    assert not caught.value.expired
    with pytest.raises(InvalidOption, match="merge-engine"):
        table.copy({"merge-engine": "first-row"})
    with pytest.raises(InvalidOption, match=r"snapshot\.time-retained"):
        table.copy({"snapshot.time-retained": "soon"})
    with pytest.raises(ColumnNotFound, match="'nope'"):
        table.to_batches(columns=["nope"])  # at once, not at the first batch


@pytest.mark.parametrize("part", ["data", "manifest-", "manifest-list-", "snapshot-1"])
@pytest.mark.parametrize("how", ["missing", "truncated"])
def test_a_damaged_file_is_named(tmp_path: Path, part: str, how: str) -> None:
    table = keyed(tmp_path)
    table.write(rows(range(50)))
    root = Path(table.store.root)
    folder = "bucket-0" if part == "data" else "snapshot" if part == "snapshot-1" else "manifest"
    # The base list of a first snapshot is empty, the delta list is not.
    victim = max(
        (path for path in (root / folder).iterdir() if path.name.startswith(part)),
        key=lambda p: (p.stat().st_size, p.name),
    )
    if part == "manifest-":
        victim = next(p for p in (root / folder).iterdir() if not p.name.startswith("manifest-list"))
    if how == "missing":
        victim.unlink()
    else:
        victim.write_bytes(victim.read_bytes()[: victim.stat().st_size // 2])
    if part == "snapshot-1" and how == "missing":
        with pytest.raises(SnapshotNotFound, match="snapshot 1"):
            table.to_arrow(snapshot_id=1)
        return
    with pytest.raises(CorruptFile, match=victim.name):
        table.to_arrow()


class _FullDisk(LocalFileIO):
    """A disk that is full from the n-th new file on."""

    def __init__(self, room: int) -> None:
        super().__init__()
        self.room = room

    def open_output(self, path: str) -> Any:
        self._take(path)
        return super().open_output(path)

    def write_exclusive(self, path: str, data: bytes) -> bool:
        self._take(path)
        return super().write_exclusive(path, data)

    def _take(self, path: str) -> None:
        self.room -= 1
        if self.room < 0:
            raise StorageFull(path) from OSError(errno.ENOSPC, "full")


@pytest.mark.parametrize("room", range(6))
def test_a_full_disk_is_named_and_nothing_half_written(tmp_path: Path, room: int) -> None:
    table = keyed(tmp_path)
    table.write(rows(range(10)))
    before = content(table)
    full: FileIO = _FullDisk(room)
    files = 4  # data, delta manifest and list, base list; then the snapshot
    if room > files:
        with_io(table, full).write(rows([99]))
        assert len(content(table)) == 11
        return
    with pytest.raises(StorageFull, match=table.store.root):
        with_io(table, full).write(rows([99]))
    assert content(table) == before
    assert not strays(table)


def test_system_tables_show_snapshots_and_files(tmp_path: Path) -> None:
    table = keyed(tmp_path, partitioned=True, bucket="2")
    table.write(rows(range(20), dt="a"))
    table.write(rows(range(20), dt="b"))
    table.compact(full=True, partitions=[{"dt": "a"}])
    made = catalog(tmp_path)
    files = made.table("db.t$files").to_arrow()
    assert files.column("partition").to_pylist() == ["{a}", "{a}", "{b}", "{b}"]
    assert set(files.column("level").to_pylist()) == {0, 5}
    assert sum(files.column("record_count").to_pylist()) == 40
    for path in files.column("file_path").to_pylist():
        assert Path(path).is_file()
    assert set(files.column("file_format").to_pylist()) == {"parquet"}
    old = made.table("db.t$files").to_arrow(columns=["level"], snapshot_id=1)
    assert old.column("level").to_pylist() == [0, 0]
    snapshots = made.table("db.t$snapshots").to_arrow()
    assert snapshots.column("commit_kind").to_pylist() == ["APPEND", "APPEND", "COMPACT"]
    assert snapshots.column("total_record_count").to_pylist() == [20, 40, 40]
    with pytest.raises(ColumnNotFound, match="'nope'"):
        made.table("db.t$files").to_arrow(columns=["nope"])
    empty = made.create_table("db.e", Schema(pa.schema([pa.field("a", pa.int8())]), options={"bucket": "-1"}))
    assert made.table(f"{empty.name}$files").to_arrow().num_rows == 0
    assert made.table(f"{empty.name}$snapshots").to_arrow().num_rows == 0


def test_the_facade_says_what_the_table_is(tmp_path: Path) -> None:
    table = keyed(tmp_path, partitioned=True)
    assert (table.name, table.primary_keys, table.partition_keys) == ("db.t", ("dt", "k"), ("dt",))
    assert table.schema.arrow_schema.names == ["k", "v", "s", "dt"]
    assert table.copy({"snapshot.time-retained": "5 min"}).options["snapshot.time-retained"] == "5 min"
    assert "snapshot.time-retained" not in table.options


@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (lambda t: t.to_arrow(limit=-1), InvalidOption, "'limit'"),
        (lambda t: t.to_batches(limit="3"), InvalidOption, "'limit'"),
        (lambda t: t.to_arrow(snapshot_id="1"), InvalidOption, "'snapshot_id'"),
        (lambda t: t.to_arrow(columns="kv"), InvalidFilter, "not the text 'kv'"),
        (lambda t: t.compact(buckets=["0"]), InvalidOption, "'buckets'"),
        (lambda t: t.compact(partitions="dt"), InvalidFilter, "partition 'd'"),
        (lambda t: t.health(partition="dt"), InvalidFilter, "partition 'dt'"),
        (lambda t: t.write(rows([1]), overwrite="dt"), InvalidOption, "'overwrite'"),
        (lambda t: t.expire_snapshots(retain_max="1"), InvalidOption, "'retain_max'"),
        (lambda t: t.expire_snapshots(older_than_ms="1 h"), InvalidOption, "'older_than_ms'"),
        (lambda t: t.copy({"branch": "dev"}).to_arrow(), UnsupportedFeature, "'branch' = 'dev'"),
        (lambda t: t.copy({"branch": "dev"}).write(rows([1])), UnsupportedFeature, "'branch' = 'dev'"),
    ],
)
def test_arguments_of_another_kind_are_named(tmp_path: Path, call: Any, error: type[Exception], says: str) -> None:
    table = keyed(tmp_path)
    table.write(rows([1, 2, 3]))
    with pytest.raises(error, match=says):
        call(table)
    assert len(table.snapshots()) == 1


def test_tables_and_system_tables_are_asked_for_rows_in_the_same_words() -> None:
    for name in ("to_arrow", "to_batches"):
        assert getattr(Table, name) is getattr(ReadOnlyTable, name)


def test_a_text_is_not_taken_for_true(tmp_path: Path) -> None:
    table, home = keyed(tmp_path), catalog(tmp_path)
    for call, name in (
        (lambda: table.write(rows([1]), compact="no"), "compact"),  # type: ignore[arg-type]
        (lambda: table.compact("no"), "full"),  # type: ignore[arg-type]
        (lambda: table.expire_snapshots(dry_run="yes"), "dry_run"),  # type: ignore[arg-type]
        (lambda: table.create_tag("x", replace=1), "replace"),  # type: ignore[arg-type]
        (lambda: table.to_arrow(dictionaries=None), "dictionaries"),  # type: ignore[arg-type]
        (lambda: table.new_write().compact({}, 0, "no"), "full"),  # type: ignore[arg-type]
        (lambda: table.new_stream_write("job").compact({}, 0, full=1), "full"),  # type: ignore[arg-type]
        (lambda: table.new_stream_write("job").prepare_commit("no"), "wait_compaction"),  # type: ignore[arg-type]
        (lambda: home.drop_database("db", cascade="no"), "cascade"),  # type: ignore[arg-type]
        (lambda: home.drop_table("db.u", "false"), "ignore_if_not_exists"),  # type: ignore[arg-type]
    ):
        with pytest.raises(InvalidOption, match=f"'{name}' cannot be .*accepted: True or False"):
            call()
    assert table.snapshots() == []
    with pytest.raises(InvalidOption, match="'main'"):
        table.create_branch("main")
    assert table.write(rows([1]), compact=np.True_) == 1  # type: ignore[arg-type]
