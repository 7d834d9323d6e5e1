"""Compactions of primary-key tables with deletion vectors: level 0 marks what it supersedes above; readers see compacted rows, each key once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lsm_core import Catalog, Schema, SchemaChange, Table
from lsm_core.compact import BucketResult, BucketTask, run_tasks_locally
from lsm_core.compact.pieces import cut_task, join, run_bucket_task
from lsm_core.errors import CorruptFile
from lsm_core.maintenance.actions.compact.execution import tasks_of_plan
from lsm_core.maintenance.apply import apply_plan
from lsm_core.maintenance.verify import ReferenceJudge
from lsm_core.metadata import indexes, snapshots
from lsm_core.types import RowKind
from tests.support import stores
from tests.support.samples import examples, one_in

UNIT = 1_000_003
COLUMNS = pa.schema([pa.field("k", pa.int64(), nullable=False), ("v", pa.int64())])


def create(tmp_path: Path, **options: str) -> Table:
    catalog = Catalog(tmp_path / "wh")
    catalog.create_database("db", ignore_if_exists=True)
    named = {name.replace("__", ".").replace("_", "-"): value for name, value in options.items()}
    chosen = {"bucket": "1", "deletion-vectors.enabled": "true", **named}
    return catalog.create_table("db.t", Schema(COLUMNS, ["k"], [], chosen))


def rows(keys: Sequence[int], value: int) -> pa.Table:
    # values that no encoding makes small, so that sizes are as rows
    return pa.table([list(keys), [value * UNIT + key * 7919 % UNIT for key in keys]], schema=COLUMNS)


def write(table: Table, keys: Sequence[int], value: int, kind: RowKind = RowKind.INSERT) -> None:
    table.write(rows(keys, value), row_kinds=pa.array([int(kind)] * len(keys), pa.int8()))


def content(table: Table) -> dict[int, int]:
    found = table.to_arrow().to_pylist()
    listed = {row["k"]: row["v"] // UNIT for row in found}
    assert len(listed) == len(found), "a key came twice"
    return listed


def levels(table: Table) -> list[int]:
    return sorted(file.level for files in stores.live_files(table.store).values() for file in files)


@pytest.mark.parametrize("wide", one_in(2, ["false", "true"], 1), ids=["v1", "bitmap64"])
def test_level_0_is_hidden_until_it_is_compacted_and_then_marks_what_it_supersedes(tmp_path: Path, wide: str) -> None:
    table = create(tmp_path, deletion_vectors__bitmap64=wide)
    write(table, range(5000), 0)
    assert content(table) == {}
    assert [(bucket.level0_files, bucket.hidden_rows) for bucket in table.health()] == [(1, 5000)]
    table.compact(full=True)
    assert content(table) == dict.fromkeys(range(5000), 0)
    write(table, range(10, 20), 1)
    write(table, [12, 13, 9000], 2, RowKind.DELETE)
    assert content(table) == dict.fromkeys(range(5000), 0)
    assert table.health()[0].hidden_rows == 13
    report = table.compact()
    assert report.verification.level == "V2"
    assert max(levels(table)) == 5
    assert 0 not in levels(table)
    assert len(levels(table)) == 2
    (count,) = stores.deleted_rows(table.store).values()
    assert count == 10
    expected = {**dict.fromkeys(range(5000), 0), **dict.fromkeys(range(10, 20), 1)}
    del expected[12], expected[13]
    assert content(table) == expected
    # nothing is merged by the reader: every split is raw, also for other engines
    assert all(split.raw and split.raw_convertible for split in table.plan_scan())
    assert table.lookup(pa.table({"k": pa.array([11, 12, 30])})).num_rows == 2
    before = snapshots.latest_id(table.store)
    report = table.compact(full=True)
    assert report.rows_in == 5008 - 10
    assert stores.deleted_rows(table.store) == {}
    assert content(table) == expected
    assert before is not None
    assert table.verify(before, before + 1).ok


def test_a_file_that_moves_up_by_metadata_alone_marks_too(tmp_path: Path) -> None:
    table = create(tmp_path, compaction__small_file_ratio="0.000001")
    write(table, range(2000), 0)
    table.compact(full=True)
    write(table, range(500, 600), 1)
    report = table.compact()
    assert (report.files_upgraded, report.files_in) == (1, 0)
    assert list(stores.deleted_rows(table.store).values()) == [100]
    assert content(table) == {**dict.fromkeys(range(2000), 0), **dict.fromkeys(range(500, 600), 1)}


def test_deletes_go_at_every_level_because_what_they_hid_is_marked(tmp_path: Path) -> None:
    table = create(tmp_path, dredge__tombstone_retention="30 d")
    write(table, range(3000), 0)
    table.compact(full=True)
    write(table, range(100), 1)
    write(table, range(50, 150), 2, RowKind.DELETE)
    table.compact()
    files = [file for files in stores.live_files(table.store).values() for file in files]
    assert [file.delete_row_count for file in files] == [0] * len(files)
    assert len(files) == 2
    assert content(table) == {**dict.fromkeys(range(150, 3000), 0), **dict.fromkeys(range(50), 1)}


def test_pieces_of_a_bucket_mark_what_the_whole_would(tmp_path: Path) -> None:
    table = create(tmp_path, target_file_size="256 kb")
    write(table, range(150_000), 0)
    table.compact(full=True)
    for start in (0, 3):
        write(table, range(start, 150_000, 6), start + 1)
    ((_, task),) = tasks_of_plan(table.store, table.plan_maintenance("compact"))[0]
    pieces = cut_task(table.store, task, 3)
    assert len(pieces) > 1
    results = []
    for piece in pieces:
        sent = BucketTask.from_bytes(piece.to_bytes())
        assert sent == piece
        done = run_bucket_task(table.store, sent, ReferenceJudge(), share=len(pieces))
        assert not done.message.own_index_files()
        results.append(BucketResult.from_bytes(done.to_bytes()))
    whole = run_bucket_task(table.store, task, ReferenceJudge())
    result_of_pieces = join(table.store, pieces, results)
    first, two = (
        {
            place.data_file: indexes.read_vector(table.store, places[place.data_file]).positions().tolist()
            for file in result.message.compact_new_index_files
            for places in [indexes.deletion_files(table.store, task.partition, 0, [file])]
            for place in file.deletion_vectors or ()
        }
        for result in (result_of_pieces, whole)
    )
    assert first == two
    assert sum(map(len, first.values())) == 50_000


def test_another_compaction_that_marked_meanwhile_makes_ours_stale(tmp_path: Path) -> None:
    table = create(tmp_path)
    write(table, range(3000), 0)
    table.compact(full=True)
    write(table, range(10), 1)
    plan = table.plan_maintenance("compact", full=True)

    def runner(store: Any, tasks: Any) -> Any:
        done = list(run_tasks_locally(store, tasks))
        other = Catalog(tmp_path / "wh").table("db.t")
        write(other, range(5, 15), 2)
        other.compact()
        yield from done

    report = apply_plan(table.store, plan, runner)
    assert [declined.reason for declined in report.declined] == ["stale"]
    assert content(table) == {
        **dict.fromkeys(range(3000), 0),
        **dict.fromkeys(range(5), 1),
        **dict.fromkeys(range(5, 15), 2),
    }
    assert len(list(Path(table.store.root, "index").glob("*"))) == len(stores.deleted_rows(table.store)) == 1


def test_vectors_of_files_that_are_gone_go_with_the_next_compaction(tmp_path: Path) -> None:
    """Java leaves them behind when a compaction rewrites a file that has one."""
    table = create(tmp_path)
    write(table, range(3000), 0)
    table.compact(full=True)
    write(table, range(10), 1)
    table.compact()
    ((_, task),) = tasks_of_plan(table.store, table.plan_maintenance("compact", full=True))[0]
    (file,) = task.index_files
    (place,) = file.deletion_vectors or ()
    stale = replace(file, deletion_vectors=(place, replace(place, data_file="data-gone.parquet")))
    result = run_bucket_task(table.store, replace(task, index_files=(stale,)))
    assert result.message.compact_new_index_files == ()
    assert result.message.compact_deleted_index_files == (stale,)


@pytest.mark.parametrize("damage", ["missing", "short"])
def test_a_damaged_index_file_stops_the_compaction_and_nothing_is_left(tmp_path: Path, damage: str) -> None:
    table = create(tmp_path)
    write(table, range(3000), 0)
    table.compact(full=True)
    write(table, range(10), 1)
    table.compact()
    write(table, range(20), 2)
    (path,) = Path(table.store.root, "index").glob("*")
    data = path.read_bytes()
    path.unlink() if damage == "missing" else path.write_bytes(data[:-3])
    disk = {item.name for item in Path(table.store.root, "bucket-0").iterdir()}
    before = snapshots.latest_id(table.store)
    for full in (False, True):
        with pytest.raises(CorruptFile, match=path.name):
            table.compact(full=full)
    assert snapshots.latest_id(table.store) == before
    assert {item.name for item in Path(table.store.root, "bucket-0").iterdir()} == disk
    path.write_bytes(data)
    table.compact()
    assert content(table) == {**dict.fromkeys(range(3000), 0), **dict.fromkeys(range(20), 2)}


def test_the_option_is_set_while_levels_hold_older_versions(tmp_path: Path) -> None:
    """Java reads such a table with both versions of a key."""
    table = create(tmp_path, deletion_vectors__enabled="false", deletion_vectors__modifiable="true")
    write(table, range(3000), 0)
    table.compact(full=True)
    for number in range(1, 6):
        write(table, range(number * 10, number * 10 + 10), number)
    table.compact()
    assert len(set(levels(table))) > 1
    write(table, range(5), 9)
    catalog = Catalog(tmp_path / "wh")
    catalog.alter_table("db.t", [SchemaChange.set_option("deletion-vectors.enabled", "true")])
    table = catalog.table("db.t")
    expected = dict.fromkeys(range(3000), 0)
    for number in range(1, 6):
        expected.update(dict.fromkeys(range(number * 10, number * 10 + 10), number))
    assert content(table) == expected
    table.compact()
    expected.update(dict.fromkeys(range(5), 9))
    assert content(table) == expected
    assert levels(table) == [5]
    write(table, range(4), 10)
    table.compact()
    assert content(table) == {**expected, **dict.fromkeys(range(4), 10)}
    assert list(stores.deleted_rows(table.store).values()) == [4]


STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["write", "delete"]), st.integers(0, 2200), st.integers(1, 300)),
        st.tuples(st.sampled_from(["minor", "minor", "full", "stream", "drop"]), st.integers(0, 9), st.just(0)),
    ),
    min_size=4,
    max_size=12,
)


@settings(max_examples=examples(12), deadline=None)
@given(steps=STEPS, wide=st.booleans())
def test_any_history_reads_as_a_dictionary_would(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int, int]], wide: bool
) -> None:
    table = create(
        tmp_path_factory.mktemp("t"),
        deletion_vectors__bitmap64=str(wide).lower(),
        num_sorted_run__compaction_trigger="3",
    )
    write(table, range(2000), 0)
    table.compact(full=True)
    model = dict.fromkeys(range(2000), 0)
    compacted = dict(model)
    for number, (verb, first, count) in enumerate(steps, 1):
        keys = range(first, first + count)
        if verb == "write":
            write(table, keys, number)
            model.update(dict.fromkeys(keys, number))
        elif verb == "delete":
            write(table, keys, number, RowKind.DELETE)
            model = {key: value for key, value in model.items() if key not in keys}
        elif verb == "stream":  # a long-lived writer, which compacts by itself
            with table.new_stream_write(f"user {number}") as writer:
                commit = table.new_stream_commit(f"user {number}")
                for round_ in range(3):
                    writer.write(rows(range(first + round_, first + round_ + 50), number))
                    model.update(dict.fromkeys(range(first + round_, first + round_ + 50), number))
                    commit.filter_and_commit({round_ + 1: writer.prepare_commit(wait_compaction=True)})
        elif verb == "drop":
            table.truncate()
            model = {}
        else:
            table.compact(full=verb == "full")
            compacted = dict(model)
            if verb == "full":
                assert stores.deleted_rows(table.store) == {}
        if verb == "drop":
            compacted = {}
        if verb == "stream":
            assert content(table).keys() <= {*model, *compacted}
            table.compact()
            compacted = dict(model)
        assert content(table) == compacted
    table.compact(full=True)
    assert content(table) == model
    assert stores.deleted_rows(table.store) == {}
