"""Keys that move between partitions: what is written against a dictionary that goes row by row, in memory and put aside on disk."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lsm_core import Catalog, Schema, Table
from lsm_core.commit import CommitMessage
from lsm_core.errors import CommitConflict, ConflictKind, InvalidData
from lsm_core.metadata.store import BucketMode
from lsm_core.read import read_split
from lsm_core.write import cross_partition
from tests.support.samples import one_in

ENGINES = ("deduplicate", "partial-update", "aggregation", "first-row")
FIELDS = pa.schema(
    [
        pa.field("p", pa.string(), nullable=False),
        pa.field("q", pa.int32(), nullable=False),
        pa.field("k", pa.int64(), nullable=False),
        ("v", pa.int64()),
    ]
)
Row = tuple[str, int, int, int, str]
Make = Callable[..., Table]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """Tables ``db.t0``, ``db.t1`` ... of three keys a bucket, with the clock at rest."""
    catalog = Catalog(str(tmp_path), clock="fixed:1700000000000")
    catalog.create_database("db")
    names = (f"db.t{number}" for number in range(10_000))

    def create(engine: str = "deduplicate", keys: tuple[str, ...] = ("k",), **options: str) -> Table:
        given = {"merge-engine": engine, "dynamic-bucket.target-row-num": "3", "write-only": "true"}
        given |= {key.replace("_", "-"): value for key, value in options.items()}
        partitions = ["p"] if keys == ("k",) else ["p", "q"]
        return catalog.create_table(next(names), Schema(FIELDS, list(keys), partitions, given))

    return create


def table_of(rows: list[Row]) -> tuple[pa.Table, pa.Array]:
    columns = list(zip(*rows, strict=True)) if rows else [(), (), (), (), ()]
    data = pa.table(
        [pa.array(column, field.type) for column, field in zip(columns, FIELDS, strict=False)], schema=FIELDS
    )
    return data, pa.array(columns[4], pa.string())


def told(
    engine: str,
    keys: tuple[str, ...],
    batches: list[list[Row]],
    before: dict[Any, tuple[str, int, int, int]] | None = None,
) -> dict[Any, tuple[str, int, int, int]]:
    """The rows afterwards, one at a time (`GlobalIndexAssigner.processInput`)."""
    held = dict(before or {})
    for p, q, k, v, kind in (row for batch in batches for row in batch):
        key = k if keys == ("k",) else (q, k)
        old = held.get(key)
        if engine == "deduplicate":
            held.pop(key, None)
            if kind != "-D":
                held[key] = p, q, k, v
        elif old is None:
            held[key] = p, q, k, v
        elif engine == "aggregation":
            held[key] = old[0], old[1], k, old[3] + v
        elif engine == "partial-update":
            held[key] = old[0], q if keys == ("k",) else old[1], k, v
    return held


def found(table: Table, keys: tuple[str, ...]) -> dict[Any, tuple[str, int, int, int]]:
    """The rows, one per key in the whole table; every bucket by itself has them, too."""
    rows = table.to_arrow().to_pylist()
    answer = {row["k"] if keys == ("k",) else (row["q"], row["k"]): tuple(row.values()) for row in rows}
    assert len(answer) == len(rows)
    return answer


rows = st.tuples(
    st.sampled_from("abc"),
    st.integers(0, 1),
    st.integers(0, 12),
    st.integers(0, 99),
    st.sampled_from(["+I", "+U", "-D"]),
)


@pytest.mark.parametrize(("engine", "keys"), one_in(5, product(ENGINES, (("k",), ("q", "k")))))
@settings(max_examples=6, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.lists(rows, max_size=25), max_size=4), st.booleans(), st.integers(0, 3))
def test_any_history_leaves_the_rows_that_a_dictionary_has(
    make: Make, engine: str, keys: tuple[str, ...], batches: list[list[Row]], aside: bool, compacted: int
) -> None:
    if engine != "deduplicate":
        batches = [[(*row[:4], "+I") for row in batch] for batch in batches]
    sums = {"fields.v.aggregate-function": "sum", "fields.q.aggregate-function": "first_value"}
    names = [name for name in sums if name.split(".")[1] not in keys] if engine == "aggregation" else []
    table = make(engine, keys, **{name: sums[name] for name in names if keys == ("k",) or "q" not in name})
    assert table.store.bucket_mode is BucketMode.CROSS_PARTITION
    with pytest.MonkeyPatch.context() as patch:
        if aside:
            patch.setattr(cross_partition, "PART_BYTES", 200)
        for number, batch in enumerate(batches):
            data, kinds = table_of(batch)
            with table.new_write() as writer:
                half = len(batch) // 2
                writer.write(data.slice(0, half), kinds.slice(0, half))
                writer.write(data.slice(half), kinds.slice(half))
                table.new_commit().commit(writer.prepare_commit())
            if engine == "first-row" or number == compacted:
                table.compact(full=True)
    assert found(table, keys) == told(engine, keys, batches)
    per_bucket = [
        row["k"] if keys == ("k",) else (row["q"], row["k"])
        for split in table.plan_scan()
        for batch in read_split(table.store, split, FIELDS.names)
        for row in batch.to_pylist()
    ]
    assert len(per_bucket) == len(set(per_bucket))


def prepared(table: Table, *given: Row) -> list[CommitMessage]:
    data, kinds = table_of(list(given))
    with table.new_write() as writer:
        writer.write(data, kinds)
        return writer.prepare_commit()


def test_buckets_of_a_partition_hold_their_number_of_keys(make: Make) -> None:
    table = make()
    for first in (0, 5):
        table.new_commit().commit(prepared(table, *(("a", 0, k, 1, "+I") for k in range(first, first + 5))))
    counts = [sum(batch.num_rows for batch in read_split(table.store, split, ["k"])) for split in table.plan_scan()]
    assert sorted(counts) == [1, 3, 3, 3]


def test_another_commit_since_the_keys_were_looked_up_is_a_conflict(make: Make) -> None:
    table = make()
    ours = [CommitMessage.from_bytes(m.to_bytes()) for m in prepared(table, ("a", 0, 1, 1, "+I"))]
    table.new_commit().commit(prepared(table, ("b", 0, 1, 2, "+I")))
    with pytest.raises(CommitConflict, match="another commit followed the lookup of the partitions") as caught:
        table.new_commit().commit(ours)
    assert caught.value.kind is ConflictKind.INDEX_CHANGED
    assert found(table, ("k",)) == {1: ("b", 0, 1, 2)}


def test_a_compaction_since_is_none(make: Make) -> None:
    table = make()
    for value in (1, 2):
        table.new_commit().commit(prepared(table, ("a", 0, 1, value, "+I")))
    ours = prepared(table, ("b", 0, 1, 3, "+I"))
    table.compact(full=True)
    table.new_commit().commit(ours)
    assert found(table, ("k",)) == {1: ("b", 0, 1, 3)}


@pytest.mark.parametrize("engine", one_in(2, ENGINES, 1))
@settings(max_examples=5, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.tuples(st.lists(rows, max_size=12), st.integers(0, 2)), max_size=6),
    st.booleans(),
    st.booleans(),
)
def test_a_long_lived_writer_knows_where_its_uncommitted_keys_are(
    make: Make, engine: str, turns: list[tuple[list[Row], int]], aside: bool, compacts: bool
) -> None:
    """``turns``: rows of a commit, and how many of those that wait are committed after it was prepared."""
    if engine != "deduplicate":
        turns = [([(*row[:4], "+I") for row in batch], done) for batch, done in turns]
    sums = {"fields.v.aggregate-function": "sum", "fields.q.aggregate-function": "first_value"}
    table = make(engine, **({} if engine != "aggregation" else sums), write_only=str(not compacts).lower())
    commit, waiting = table.new_stream_commit("job"), {}
    with pytest.MonkeyPatch.context() as patch, table.new_stream_write("job") as writer:
        if aside:
            patch.setattr(cross_partition, "PART_BYTES", 200)
        for number, (batch, done) in enumerate(turns):
            writer.write(*table_of(batch))
            messages = writer.prepare_commit(commit_identifier=number)
            waiting[number] = [CommitMessage.from_bytes(message.to_bytes()) for message in messages]
            for first in sorted(waiting)[:done]:
                commit.commit(waiting.pop(first), first)
    commit.filter_and_commit(waiting)
    if engine == "first-row":
        table.compact(full=True)
    assert found(table, ("k",)) == told(engine, ("k",), [batch for batch, _ in turns])


def test_a_commit_whose_keys_count_on_an_earlier_one_does_not_come_before_it(make: Make) -> None:
    table = make()
    table.new_commit().commit(prepared(table, ("a", 0, 1, 1, "+I")))
    with table.new_stream_write("job") as writer:
        found_messages = {}
        for number, place in enumerate("bc"):
            writer.write(*table_of([(place, 0, 1, number, "+I")]))
            found_messages[number] = writer.prepare_commit(commit_identifier=number)
        with pytest.raises(CommitConflict, match="commit 0 of job is not in the table") as caught:
            table.new_stream_commit("job").commit(found_messages[1], 1)
        assert caught.value.kind is ConflictKind.BASE_GONE
        assert found(table, ("k",)) == {1: ("a", 0, 1, 1)}


def test_another_job_between_two_commits_that_count_on_each_other_is_a_conflict(make: Make) -> None:
    table = make()
    commit = table.new_stream_commit("job")
    with table.new_stream_write("job") as writer:
        writer.write(*table_of([("a", 0, 1, 1, "+I")]))
        first = writer.prepare_commit(commit_identifier=0)
        writer.write(*table_of([("b", 0, 1, 2, "+I")]))
        second = writer.prepare_commit(commit_identifier=1)
        commit.commit(first, 0)
        table.new_commit().commit(prepared(table, ("c", 0, 1, 3, "+I")))
        with pytest.raises(CommitConflict, match="another commit followed the lookup"):
            commit.commit(second, 1)
    assert found(table, ("k",)) == {1: ("c", 0, 1, 3)}


def test_keys_of_old_files_alone_are_forgotten(make: Make) -> None:
    table = make(**{"cross-partition-upsert.index-ttl": "1 h"})
    table.new_commit().commit(prepared(table, ("a", 0, 1, 1, "+I")))
    table.store.clock.advance(1_800_000)  # type: ignore[attr-defined]
    table.new_commit().commit(prepared(table, ("b", 0, 1, 2, "+I"), ("c", 0, 2, 2, "+I")))
    assert found(table, ("k",)) == {1: ("b", 0, 1, 2), 2: ("c", 0, 2, 2)}
    table.store.clock.advance(3_700_000)  # type: ignore[attr-defined]
    table.new_commit().commit(prepared(table, ("b", 0, 2, 3, "+I")))
    assert sorted(row["p"] for row in table.to_arrow().to_pylist() if row["k"] == 2) == ["b", "c"]


def test_deletes_and_updates_change_rows_where_they_are(make: Make) -> None:
    table = make()
    table.new_commit().commit(prepared(table, *(("abc"[k % 3], 0, k, 1, "+I") for k in range(9))))
    table.delete([("k", "<", 3)])
    table.update([("k", ">", 6)], {"v": 5})
    assert found(table, ("k",)) == {k: ("abc"[k % 3], 0, k, 5 if k > 6 else 1) for k in range(3, 9)}


def overwritten(
    engine: str, held: dict[Any, tuple[str, int, int, int]], given: list[Row], replaced: str | None
) -> dict[Any, tuple[str, int, int, int]]:
    """The rows after an overwrite of the partitions ``replaced`` (None: those that rows named and got), one row at a time."""
    homes, landed, named = {key: row[0] for key, row in held.items()}, [], set()
    for p, q, k, v, kind in given:
        place = p if engine == "deduplicate" else homes.get(k, p)
        if engine == "first-row" and place != p:
            continue
        homes[k] = place
        named |= {place} & {p}
        landed.append((place, q, k, v, kind))
    gone = named if replaced is None else set(replaced)
    return told(engine, ("k",), [landed], {key: row for key, row in held.items() if row[0] not in gone})


@pytest.mark.parametrize(("engine", "scope"), one_in(7, product(ENGINES, ("dynamic", "static", "whole"))))
@settings(max_examples=4, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(rows, min_size=1, max_size=25), st.lists(rows, min_size=1, max_size=12), st.lists(rows, max_size=12))
def test_an_overwrite_replaces_its_partitions_and_keys_leave_the_others(
    make: Make, engine: str, scope: str, before: list[Row], given_rows: list[Row], after: list[Row]
) -> None:
    if engine != "deduplicate":
        before, given_rows, after = ([(*row[:4], "+I") for row in part] for part in (before, given_rows, after))
    if scope == "static":
        given_rows = [("a", *row[1:]) for row in given_rows]
    sums = {"fields.v.aggregate-function": "sum", "fields.q.aggregate-function": "first_value"}
    whole = {"dynamic-partition-overwrite": "false"} if scope == "whole" else {}
    table = make(engine, **({} if engine != "aggregation" else sums), **whole)

    def settle() -> None:
        if engine == "first-row":
            table.compact(full=True)

    table.write(*table_of(before))
    settle()
    table.write(*table_of(given_rows), {"p": "a"} if scope == "static" else True)
    settle()
    replaced = {"dynamic": None, "static": "a", "whole": "abc"}[scope]
    held = overwritten(engine, told(engine, ("k",), [before]), given_rows, replaced)
    assert found(table, ("k",)) == held
    table.write(*table_of(after))
    settle()
    assert found(table, ("k",)) == told(engine, ("k",), [after], held)


def test_rows_outside_the_partition_that_is_overwritten_are_refused(make: Make) -> None:
    table = make()
    table.write(*table_of([("a", 0, 1, 1, "+I"), ("b", 0, 2, 1, "+I")]))
    with pytest.raises(InvalidData, match="lie outside"):
        table.write(*table_of([("a", 0, 2, 2, "+I"), ("b", 0, 3, 2, "+I")]), {"p": "a"})
    assert found(table, ("k",)) == {1: ("a", 0, 1, 1), 2: ("b", 0, 2, 1)}
    assert len(list(Path(table.store.root).rglob("data-*"))) == 2


def test_a_dropped_partition_takes_its_keys_along(make: Make) -> None:
    table = make()
    table.write(*table_of([("a", 0, 1, 1, "+I"), ("a", 0, 2, 1, "+I"), ("b", 0, 3, 1, "+I")]))
    table.drop_partitions([{"p": "a"}])
    assert found(table, ("k",)) == {3: ("b", 0, 3, 1)}
    table.write(*table_of([("c", 0, 1, 2, "+I"), ("a", 0, 3, 2, "+I")]))
    assert found(table, ("k",)) == {1: ("c", 0, 1, 2), 3: ("a", 0, 3, 2)}
    table.truncate()
    table.write(*table_of([("b", 0, 1, 3, "+I")]))
    assert found(table, ("k",)) == {1: ("b", 0, 1, 3)}


@pytest.mark.parametrize("engine", ["deduplicate", "partial-update", "first-row"])
def test_keys_of_fixed_buckets_stay_in_the_partition_that_rows_name(make: Make, engine: str) -> None:
    table = make(engine, bucket="2", **{"dynamic-bucket.target-row-num": "3"})
    table.write(*table_of([("a", 0, k, 1, "+I") for k in range(4)]))
    table.write(*table_of([("b", 0, k, 2, "+I") for k in range(2, 6)]))
    table.write(*table_of([("b", 0, 2, 3, "+I")]))
    table.compact(full=True)
    newest = 2 if engine == "first-row" else 3
    expected = [("a", k, 1) for k in range(4)] + [("b", k, newest if k == 2 else 2) for k in range(2, 6)]
    assert sorted((r["p"], r["k"], r["v"]) for r in table.to_arrow().to_pylist()) == expected
    both = table.lookup(pa.table({"k": pa.array([3, 5, 9], pa.int64())})).to_pylist()
    assert sorted((r["p"], r["k"]) for r in both) == [("a", 3), ("b", 3), ("b", 5)]
    assert {split.bucket for split in table.plan_scan()} == {0, 1}
    table.write(*table_of([("b", 0, 7, 4, "+I")]), overwrite=True)
    assert sorted((r["p"], r["k"]) for r in table.to_arrow().to_pylist()) == [*(("a", k) for k in range(4)), ("b", 7)]


def test_an_aborted_writer_leaves_no_file_and_no_spill(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    table = make()
    monkeypatch.setattr(cross_partition, "PART_BYTES", 100)
    with pytest.raises(RuntimeError, match="stop"), table.new_write() as writer:
        writer.write(table_of([("a", 0, k, 1, "+I") for k in range(50)])[0])
        raise RuntimeError("stop")
    assert not list(Path(table.store.root).rglob("data-*"))
