"""Long-lived writers: numbered commits that happen once, compaction in the background, and views that follow the table."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lsm_core import Catalog, Schema, Table
from lsm_core.commit import CommitMessage, abort
from lsm_core.errors import CorruptFile, InvalidData, InvalidOption, UnsupportedFeature, WriterStale
from lsm_core.format.manifest import SOURCE_COMPACT
from lsm_core.format.snapshot import CommitKind
from tests.support.samples import one_in
from tests.support.stores import committed_files, data_files_on_disk, live_files

FIELDS = pa.schema([pa.field("k", pa.int64(), nullable=False), ("v", pa.int64())])


def rows(first: int, count: int, value: int) -> pa.Table:
    keys = np.arange(first, first + count)
    return pa.table([pa.array(keys), pa.array(np.full(count, value))], schema=FIELDS)


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Any]:
    """A new table in a catalog of its own."""
    catalog = Catalog(str(tmp_path))
    catalog.create_database("db")

    def create(name: str = "t", keys: tuple[str, ...] = ("k",), **options: str) -> Table:
        given = {"bucket": "1", **{key.replace("_", "-"): value for key, value in options.items()}}
        if "trigger" in given:
            given["num-sorted-run.compaction-trigger"] = given.pop("trigger")
        catalog.create_table(f"db.{name}", Schema(FIELDS, primary_keys=list(keys), options=given))
        return catalog.table(f"db.{name}")

    return create


def content(table: Table) -> dict[int, int]:
    found = table.to_arrow()
    assert len(set(found.column("k").to_pylist())) == found.num_rows
    return dict(zip(found.column("k").to_pylist(), found.column("v").to_pylist(), strict=True))


def on_disk(table: Table) -> set[str]:
    return {Path(path).name for path in data_files_on_disk(table.store)}


def levels(table: Table) -> list[int]:
    return sorted(file.level for files in live_files(table.store).values() for file in files)


def test_numbered_commits_happen_once_in_order_and_survive_a_restart(make: Any) -> None:
    table = make(write_only="true")
    with table.new_stream_write("job-7") as writer:
        made: dict[int, list[CommitMessage]] = {}
        for number in (3, 4, 9):
            writer.write(rows(0, 5, number))
            made[number] = writer.prepare_commit(commit_identifier=number)
        with pytest.raises(InvalidData, match="must increase"):
            writer.prepare_commit(commit_identifier=9)
    commit = table.new_stream_commit("job-7")
    assert commit.filter_and_commit({4: made[4], 3: made[3]}) == [1, 2]
    assert commit.filter_and_commit(made) == [3]
    wire = {number: [CommitMessage.from_bytes(m.to_bytes()) for m in found] for number, found in made.items()}
    assert table.new_stream_commit("job-7").filter_and_commit(wire) == []
    assert table.new_stream_commit("other").commit([], 4) == []
    assert content(table) == dict.fromkeys(range(5), 9)
    assert [(s.commit_user, s.commit_identifier) for s in table.snapshots()] == [("job-7", n) for n in (3, 4, 9)]


def test_a_commit_whose_files_are_gone_is_refused(make: Any) -> None:
    table = make(write_only="true")
    with table.new_stream_write("job") as writer:
        writer.write(rows(0, 5, 1))
        messages = writer.prepare_commit(commit_identifier=1)
    message = messages[0]
    Path(table.store.data_path(message.partition, message.bucket, message.new_files[0])).unlink()
    with pytest.raises(CorruptFile, match="commit 1 of job needs this file, which was deleted"):
        table.new_stream_commit("job").commit(messages, 1)
    assert table.latest_snapshot() is None


def test_a_long_lived_writer_compacts_and_its_commits_say_so(make: Any) -> None:
    table = make(trigger="3")
    commit = table.new_stream_commit("job")
    with table.new_stream_write("job") as writer:
        for number in range(12):
            writer.write(rows(number, 50, number))
            commit.commit(writer.prepare_commit(wait_compaction=True, commit_identifier=number), number)
    kinds = [snapshot.commit_kind for snapshot in table.snapshots()]
    assert kinds.count(CommitKind.APPEND) == 12
    assert kinds.count(CommitKind.COMPACT) >= 3
    assert len(levels(table)) <= 3
    assert content(table) == {k: min(k, 11) for k in range(61)}
    assert on_disk(table) == committed_files(table.store)


def test_write_only_never_compacts(make: Any) -> None:
    table = make(write_only="true", trigger="2")
    commit = table.new_stream_commit("job")
    with table.new_stream_write("job") as writer:
        for number in range(8):
            writer.write(rows(0, 5, number))
            commit.commit(writer.prepare_commit(wait_compaction=True, commit_identifier=number), number)
        writer.compact({}, 0)
        with pytest.raises(InvalidOption, match="write-only"):
            writer.compact({}, 0, full=True)
    assert levels(table) == [0] * 8


def test_files_made_and_compacted_away_between_commits_are_nobodys(make: Any) -> None:
    """Three full compactions in one commit: one result is handed out, what lay between is deleted, upgrades stay."""
    table = make()
    with table.new_stream_write("job") as writer:
        for step in range(3):
            writer.write(rows(10 * step, 30, step))
            writer.compact({}, 0, full=True)
        messages = writer.prepare_commit(wait_compaction=True, commit_identifier=1)
        (message,) = messages
        assert len(message.new_files) == 3
        assert {f.file_name for f in message.compact_before} == {f.file_name for f in message.new_files}
        assert [f.level for f in message.compact_after] == [5]
        assert on_disk(table) == {f.file_name for f in (*message.new_files, *message.compact_after)}
        assert table.new_stream_commit("job").commit(messages, 1) == [1, 2]
    assert levels(table) == [5]
    assert content(table) == {
        **dict.fromkeys(range(10), 0),
        **dict.fromkeys(range(10, 20), 1),
        **dict.fromkeys(range(20, 50), 2),
    }
    assert on_disk(table) == committed_files(table.store)


def test_a_lone_large_file_is_upgraded_and_then_rewritten(make: Any) -> None:
    table = make(target_file_size="1 b")
    with table.new_stream_write("job") as writer:
        writer.write(rows(0, 1, 1))
        writer.compact({}, 0, full=True)
        writer.write(rows(0, 1, 2))
        writer.compact({}, 0, full=True)
        messages = writer.prepare_commit(wait_compaction=True, commit_identifier=1)
        table.new_stream_commit("job").commit(messages, 1)
    assert content(table) == {0: 2}
    assert levels(table) == [5]
    assert on_disk(table) == committed_files(table.store)


def test_closing_deletes_what_was_not_handed_out(make: Any) -> None:
    table = make()
    with table.new_stream_write("job") as writer:
        writer.write(rows(0, 30, 1))
        table.new_stream_commit("job").commit(writer.prepare_commit(commit_identifier=1), 1)
        before = on_disk(table)
        writer.write(rows(0, 30, 2))
        writer.compact({}, 0, full=True)
        writer.write(rows(0, 30, 3))
    assert on_disk(table) == before
    assert content(table) == dict.fromkeys(range(30), 1)


def test_an_upgrade_that_was_not_handed_out_keeps_the_tables_file(make: Any) -> None:
    table = make(target_file_size="1 b")
    with table.new_stream_write("job") as writer:
        writer.write(rows(0, 1, 1))
        table.new_stream_commit("job").commit(writer.prepare_commit(commit_identifier=1), 1)
        writer.compact({}, 0, full=True)
        writer._write._bucket(b"\x00" * 12, 0).settle(wait=True)
    assert content(table) == {0: 1}


@pytest.mark.parametrize("wait", [True, False])
@pytest.mark.parametrize("foreign", one_in(2, ["compact", "overwrite", "append", "delete"]))
def test_what_others_do_between_two_commits_is_followed(make: Any, foreign: str, wait: bool) -> None:
    """A dedicated compaction, an overwrite or another writer between every two commits: no row is lost, none comes back."""
    table = make(trigger="2")
    commit = table.new_stream_commit("job")
    expected: dict[int, int] = {}
    with table.new_stream_write("job") as writer:
        for number in range(6):
            writer.write(rows(5 * number, 10, number))
            expected.update(dict.fromkeys(range(5 * number, 5 * number + 10), number))
            messages = writer.prepare_commit(wait_compaction=wait, commit_identifier=number)
            if number % 2:  # before the commit, and after it
                expected = _by_others(table, foreign, number, expected, seen=number)
            commit.commit(messages, number)
            if not number % 2:
                expected = _by_others(table, foreign, number, expected, seen=number + 1)
            if foreign == "overwrite" and number % 2:
                expected = {**expected, **dict.fromkeys(range(5 * number, 5 * number + 10), number)}
            assert content(table) == expected, number
    assert on_disk(table) == committed_files(table.store)
    if wait and foreign == "compact":
        assert any(s.commit_kind is CommitKind.COMPACT and s.commit_user == "job" for s in table.snapshots())


def _by_others(table: Table, what: str, number: int, expected: dict[int, int], seen: int) -> dict[int, int]:
    """Another user's change; ``seen``: rounds that are in the table already."""
    if what == "compact":
        if number % 3 == 0:
            table.compact(full=True)
    elif what == "overwrite":
        table.write(rows(1000, 3, number), overwrite=True)
        return dict.fromkeys(range(1000, 1003), number)
    elif what == "append":
        table.write(rows(1000 + number, 3, number))
        return {**expected, **dict.fromkeys(range(1000 + number, 1003 + number), number)}
    elif seen:
        gone = next(iter(content(table)))
        table.write(rows(gone, 1, 0), row_kinds=pa.array(["-D"]))
        return {k: v for k, v in expected.items() if k != gone}
    return expected


def test_a_compaction_that_lost_its_inputs_is_left_out_and_its_files_go(make: Any) -> None:
    table = make()
    commit = table.new_stream_commit("job")
    with table.new_stream_write("job") as writer:
        for number in range(2):
            writer.write(rows(number, 30, number))
            commit.commit(writer.prepare_commit(commit_identifier=number), number)
        writer.write(rows(5, 30, 7))
        writer.compact({}, 0, full=True)
        messages = writer.prepare_commit(wait_compaction=True, commit_identifier=7)
        assert messages[0].compact_after
        table.compact(full=True)
        assert len(commit.commit(messages, 7)) == 1
        assert commit.filter_and_commit({7: messages}) == []
        assert content(table) == {**dict.fromkeys(range(5), 1), 0: 0, **dict.fromkeys(range(5, 35), 7)}
        writer.write(rows(0, 1, 8))
        writer.compact({}, 0, full=True)
        commit.commit(writer.prepare_commit(wait_compaction=True, commit_identifier=8), 8)
    assert content(table) == {**dict.fromkeys(range(5), 1), 0: 8, **dict.fromkeys(range(5, 35), 7)}
    assert on_disk(table) == committed_files(table.store)


def test_idle_buckets_are_released_once_their_commit_is_known(make: Any, tmp_path: Path) -> None:
    catalog = Catalog(str(tmp_path))
    fields = pa.schema([pa.field("p", pa.int64(), nullable=False), *FIELDS])
    options = {"bucket": "1", "write-only": "true"}
    catalog.create_database("many")
    catalog.create_table("many.t", Schema(fields, primary_keys=["p", "k"], partition_keys=["p"], options=options))
    table = catalog.table("many.t")
    commit = table.new_stream_commit("job")
    with table.new_stream_write("job") as writer:
        most = 0
        for number in range(12):
            for partition in {number, 0}:
                part = rows(0, 3, number)
                writer.write(part.add_column(0, "p", pa.array([partition] * 3)))
            commit.commit(writer.prepare_commit(commit_identifier=number), number)
            most = max(most, writer._write.open_buckets)
        assert most <= 4
    found = table.to_arrow(filter=[("p", "=", 0)])
    assert found.column("v").to_pylist() == [11] * 3
    assert table.to_arrow().num_rows == 36


def test_sequence_numbers_go_on_behind_what_others_wrote(make: Any) -> None:
    table = make(write_only="true")
    commit = table.new_stream_commit("job")
    with table.new_stream_write("job") as writer:
        writer.write(rows(0, 1, 1))
        commit.commit(writer.prepare_commit(commit_identifier=1), 1)
        for value in (2, 3, 4):
            table.write(rows(0, 1, value))
        commit.commit(writer.prepare_commit(commit_identifier=2), 2)
        writer.write(rows(0, 1, 5))
        commit.commit(writer.prepare_commit(commit_identifier=3), 3)
    assert content(table) == {0: 5}


def test_a_changed_schema_stops_a_writer_that_compacts(make: Any, tmp_path: Path) -> None:
    from lsm_core import SchemaChange

    table = make()
    with table.new_stream_write("job") as writer:
        writer.write(rows(0, 30, 1))
        Catalog(str(tmp_path)).alter_table("db.t", [SchemaChange.add_column("new", pa.int32())])
        with pytest.raises(WriterStale, match="open it again"):
            writer.prepare_commit(commit_identifier=1)
    assert on_disk(table) == set()


def test_batch_writers_compact_only_when_they_are_told_to(make: Any) -> None:
    table = make(trigger="2")
    for number in range(4):
        table.write(rows(0, 5, number))
    assert levels(table) == [0] * 4
    with table.new_write() as writer:
        writer.write(rows(0, 5, 9))
        writer.compact({}, 0, full=True)
        assert table.new_commit().commit(writer.prepare_commit()) == 6
    assert levels(table) == [2]
    assert [f.file_source for files in live_files(table.store).values() for f in files] == [SOURCE_COMPACT]
    forced = table.copy({"commit.force-compact": "true"})
    for number in range(3):
        forced.write(rows(number, 5, number))
    assert len(levels(table)) < 4
    assert content(table) == {0: 0, 1: 1, **dict.fromkeys(range(2, 7), 2)}
    assert on_disk(table) == committed_files(table.store)


def test_an_append_tables_writer_does_not_compact(make: Any) -> None:
    table = make("a", (), bucket="-1")
    with table.new_stream_write("job") as writer:
        writer.write(rows(0, 5, 1))
        with pytest.raises(UnsupportedFeature, match="append table"):
            writer.compact({}, 0)
        assert table.new_stream_commit("job").commit(writer.prepare_commit(commit_identifier=1), 1) == [1]
    assert table.to_arrow().num_rows == 5


def test_files_written_and_compacted_away_in_one_commit_are_its_own(make: Any) -> None:
    table = make(target_file_size="1 b")
    with table.new_stream_write("job") as writer:
        for value in range(2):
            writer.write(rows(0, 1, value))
            writer.compact({}, 0, full=True)
        (message,) = writer.prepare_commit(wait_compaction=True, commit_identifier=1)
    own = [file.file_name for file in message.own_files()]
    assert len(own) == len(set(own)) == 3
    assert set(own) == on_disk(table)
    assert len(abort(table.store, [message])) == 3
    assert on_disk(table) == set()


def test_commits_of_an_earlier_life_that_arrive_late_join_the_tree(make: Any) -> None:
    """A job restarts, and only then what its last life handed out is committed: under the same name, but not this writer's."""
    table = make()
    commit = table.new_stream_commit("job")
    with table.new_stream_write("job") as first:
        first.write(rows(0, 3, 1))
        late = first.prepare_commit(commit_identifier=1)
    with table.new_stream_write("job") as second:
        second.write(rows(10, 3, 2))
        made = second.prepare_commit(commit_identifier=2)
        commit.filter_and_commit({1: late, 2: made})
        second.write(rows(20, 3, 3), row_kinds=pa.array(["-D"] * 3))
        second.compact({}, 0, full=True)
        commit.commit(second.prepare_commit(wait_compaction=True, commit_identifier=3), 3)
        batch = table.new_write()
        batch.write(rows(30, 1, 4))
        table.new_commit("job").commit(batch.prepare_commit())
        second.compact({}, 0, full=True)
        commit.commit(second.prepare_commit(wait_compaction=True, commit_identifier=4), 4)
    assert content(table) == {0: 1, 1: 1, 2: 1, 10: 2, 11: 2, 12: 2, 30: 4}
    assert levels(table) == [5]
