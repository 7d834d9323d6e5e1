"""Postponed buckets: rows wait as they came, unseen, and in the order in which they came they get their buckets."""

from __future__ import annotations

import random
import re
from itertools import product
from pathlib import Path

import pyarrow as pa
import pytest

from lsm_core import Catalog, Schema, Table
from lsm_core.commit import Committer
from lsm_core.errors import PlanStale, UnsupportedFeature
from lsm_core.format.manifest import SOURCE_APPEND, DataFileMeta
from lsm_core.format.snapshot import CommitKind
from lsm_core.metadata import snapshots
from lsm_core.metadata.store import POSTPONE_BUCKET
from lsm_core.write import TableWrite
from lsm_core.write.postpone import in_order
from tests.support.samples import one_in
from tests.support.stores import data_files_on_disk, live_files

ENGINES = {
    "deduplicate": {},
    "partial-update": {"merge-engine": "partial-update", "ignore-delete": "true"},
    "aggregation": {"merge-engine": "aggregation", "fields.v.aggregate-function": "sum", "ignore-delete": "true"},
    "first-row": {"merge-engine": "first-row", "ignore-delete": "true"},
}


def made(tmp_path: Path, name: str, *, partitioned: bool = False, **options: str) -> Table:
    catalog = Catalog(tmp_path / "wh")
    catalog.create_database("db", ignore_if_exists=True)
    fields = [pa.field("k", pa.int64(), nullable=False), pa.field("v", pa.int64()), pa.field("s", pa.string())]
    if partitioned:
        fields.append(pa.field("p", pa.string(), nullable=False))
    parts = ["p"] if partitioned else []
    given = {key.replace("__", ".").replace("_", "-"): value for key, value in options.items()}
    return catalog.create_table(f"db.{name}", Schema(pa.schema(fields), [*parts, "k"], parts, given))


def write(table: Table, rows: pa.Table, kinds: list[str]) -> None:
    with TableWrite(table.store) as writer:
        writer.write(rows, pa.array(kinds))
        Committer(table.store).commit(writer.prepare_commit())


def content(table: Table) -> list[tuple[object, ...]]:
    found = table.to_arrow()
    return sorted(zip(*(found.column(name).to_pylist() for name in found.column_names), strict=True), key=repr)


def assign(table: Table) -> None:
    table.apply(table.plan_maintenance("assign_buckets"))


@pytest.mark.parametrize(("engine", "partitioned"), one_in(3, product(sorted(ENGINES), (False, True))))
def test_rows_come_out_as_if_they_had_never_waited(tmp_path: Path, engine: str, partitioned: bool) -> None:
    rng = random.Random(f"{engine}{partitioned}")
    options = {**ENGINES[engine], "postpone.default-bucket-num": "3"}
    waiting = made(tmp_path, "t", partitioned=partitioned, **options, bucket="-2")
    twin = made(tmp_path, "twin", partitioned=partitioned, **ENGINES[engine], bucket="3")
    for step in range(14):
        keys = [rng.randrange(25) for _ in range(rng.randrange(1, 15))]
        data = {"k": keys, "v": [rng.choice([None, rng.randrange(9)]) for _ in keys], "s": [f"s{step}"] * len(keys)}
        rows = pa.table({**data, "v": pa.array(data["v"], pa.int64())})
        if partitioned:
            rows = rows.append_column("p", pa.array([f"p{k % 2}" for k in keys]))
        kinds = [rng.choice(["+I", "+U", "-D"]) for _ in keys]
        before = content(waiting)
        write(waiting, rows, kinds)
        write(twin, rows, kinds)
        assert content(waiting) == before
        if rng.random() < 0.4:
            assign(waiting)
            if engine == "first-row":  # nothing on level 0 is read
                waiting.compact(full=True)
                twin.compact(full=True)
            assert content(waiting) == content(twin)
            assert not [place for place in live_files(waiting.store) if place[1] == POSTPONE_BUCKET]
        if rng.random() < 0.3:
            waiting.compact(full=rng.random() < 0.5)
    assign(waiting)
    waiting.compact(full=True)
    twin.compact(full=True)
    assert content(waiting) == content(twin)
    if not partitioned:
        assert {bucket for _, bucket in live_files(waiting.store)} <= {0, 1, 2}
    latest = snapshots.latest(waiting.store)
    assert latest is not None
    assert latest.total_record_count == len(content(waiting)) or engine == "deduplicate"


def test_postponed_files_are_those_of_java(tmp_path: Path) -> None:
    table = made(tmp_path, "t", bucket="-2", file__format="orc")
    rows = pa.table({"k": [8, 5, 8, 3], "v": [None, 1, 2, 3], "s": ["a", "b", "c", "d"]})
    write(table, rows, ["-D", "+U", "+I", "+I"])
    ((place, (file,)),) = live_files(table.store).items()
    assert place == (bytes(12), POSTPONE_BUCKET)
    assert re.fullmatch(r"data--u-[0-9a-f-]{36}-s-\d+-w-[0-9a-f-]{36}-0\.avro", file.file_name)
    assert (Path(table.store.root) / "bucket-postpone" / file.file_name).exists()
    assert (file.min_sequence_number, file.max_sequence_number, file.level, file.file_source) == (
        -1,
        -1,
        0,
        SOURCE_APPEND,
    )
    assert (file.row_count, file.delete_row_count, file.value_stats_cols) == (4, 1, ())
    assert (file.key_stats.null_counts, file.value_stats.null_counts) == ((None,), ())
    assert file.min_key != file.max_key and file.min_key[-8:] == (8).to_bytes(8, "little")
    assert content(table) == []
    assign(table)
    latest = snapshots.latest(table.store)
    assert latest is not None
    assert (latest.commit_kind, latest.id) == (CommitKind.COMPACT, 2)
    assert content(table) == [(3, 3, "d"), (5, 1, "b"), (8, 2, "c")]


def test_a_partition_keeps_its_number_of_buckets(tmp_path: Path) -> None:
    table = made(tmp_path, "t", partitioned=True, bucket="-2", postpone__default_bucket_num="2")
    row = {"v": [1], "s": ["a"]}
    write(table, pa.table({"k": [1], **row, "p": ["old"]}), ["+I"])
    assign(table)
    table = table.copy({"postpone.default-bucket-num": "5"})
    write(table, pa.table({"k": [1, 2], "v": [3, 4], "s": ["b", "c"], "p": ["old", "new"]}), ["+I", "+I"])
    plan = table.plan_maintenance("assign_buckets")
    assert {item.cells()[:2] for item in plan.items} == {("p=old", 2), ("p=new", 5)}
    table.apply(plan)
    assert content(table) == [(1, 3, "b", "old"), (2, 4, "c", "new")]
    assert table.plan_maintenance("assign_buckets").items == ()


def test_what_came_since_the_plan_waits_on_and_a_used_plan_is_stale(tmp_path: Path) -> None:
    table = made(tmp_path, "t", bucket="-2")
    write(table, pa.table({"k": [1], "v": [1], "s": ["a"]}), ["+I"])
    plan = table.plan_maintenance("assign_buckets")
    write(table, pa.table({"k": [1], "v": [2], "s": ["b"]}), ["+I"])
    other = table.plan_maintenance("assign_buckets")
    table.apply(plan)
    assert content(table) == [(1, 1, "a")]
    before = data_files_on_disk(table.store)
    with pytest.raises(PlanStale):
        table.apply(other)
    assert data_files_on_disk(table.store) == before
    assign(table)
    assert content(table) == [(1, 2, "b")]


def test_files_are_replayed_oldest_first_and_by_number(tmp_path: Path) -> None:
    table = made(tmp_path, "t", bucket="-2")
    write(table, pa.table({"k": [1], "v": [1], "s": ["a"]}), ["+I"])
    ((_, (file,)),) = live_files(table.store).items()

    def named(number: int, when: int, user: str = "u", writer: int = 7) -> DataFileMeta:
        name = f"data--u-{user}-s-{writer}-w-767689fa-fe13-4624-bf7c-0e4f17c7f5b5-{number}.avro"
        return file.__class__(**{**vars(file), "file_name": name, "creation_time_ms": when})

    files = [named(10, 5), named(9, 5), named(0, 5, "a"), named(11, 4), named(1, 9)]
    assert in_order(files) == [files[3], files[2], files[1], files[0], files[4]]
    writers = [named(0, 5, writer=12), named(1, 5, writer=3), named(0, 5, writer=3), named(0, 4, writer=20)]
    assert in_order(writers) == [writers[3], writers[2], writers[1], writers[0]]


def test_what_is_not_done_with_postponed_rows_is_refused_by_name(tmp_path: Path) -> None:
    table = made(tmp_path, "t", bucket="-2")
    for change in (lambda: table.delete([("k", "=", 1)]), lambda: table.update([("k", "=", 1)], {"v": 1})):
        with pytest.raises(UnsupportedFeature, match="postponed buckets"):
            change()
    fixed = made(tmp_path, "fixed", bucket="2")
    with pytest.raises(UnsupportedFeature, match="without postponed ones"):
        fixed.plan_maintenance("assign_buckets")
    with pytest.raises(UnsupportedFeature, match="postponed buckets"):
        TableWrite(made(tmp_path, "told", bucket="-2", changelog_producer="input").store)
