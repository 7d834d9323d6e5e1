"""Sort compaction: the same rows, in an order that lets filters skip files; rows inserted meanwhile stay, lost inputs abort it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lsm_core import Schema, Table
from lsm_core.compact import BucketResult, BucketTask, run_bucket_task
from lsm_core.errors import (
    ColumnNotFound,
    CorruptFile,
    DredgeError,
    InvalidOption,
    PlanStale,
    StorageFull,
    UnsupportedFeature,
    VerificationFailed,
)
from lsm_core.format.snapshot import CommitKind
from lsm_core.maintenance import MaintenancePlan, apply_plan
from lsm_core.metadata.store import TableStore
from lsm_core.storage import LocalFileIO
from tests.maintenance.tables import assert_whole, catalog, content, keyed, on_disk, strays, with_io
from tests.support.samples import one_in

FIELDS = pa.schema(
    [
        ("a", pa.int32()),
        ("b", pa.float64()),
        ("s", pa.string()),
        ("tags", pa.list_(pa.int32())),
        ("dt", pa.string()),
    ]
)


def heap(tmp_path: Path, partitioned: bool = False, **options: str) -> Table:
    """An append table without buckets."""
    given = {"bucket": "-1", **{key.replace("__", ".").replace("_", "-"): value for key, value in options.items()}}
    return catalog(tmp_path).create_table("db.h", Schema(FIELDS, [], ["dt"] if partitioned else [], given))


def rows(count: int, seed: int = 0, dt: str = "x") -> pa.Table:
    """Random a and b in 0..999, with nulls; long texts here and there."""
    random = np.random.default_rng(seed)
    a, b = random.integers(0, 1000, count), random.integers(0, 1000, count)
    return pa.table(
        {
            "a": pa.array(a, mask=a % 97 == 5).cast(pa.int32()),
            "b": pa.array(b.astype(float), mask=b % 101 == 7),
            "s": [f"text {i % 13}" * (i % 7) if i % 11 else None for i in b.tolist()],
            "tags": [[i, i + 1] if i % 3 else None for i in a.tolist()],
            "dt": pa.array([dt] * count),
        },
        schema=FIELDS,
    )


def piled_up(tmp_path: Path, count: int = 4000, target: str = "6 kb", **options: str) -> Table:
    table = heap(tmp_path, target_file_size=target, **options)
    for seed in range(3):
        table.write(rows(count, seed))
    return table


def opened(table: Table, column: str, value: int) -> int:
    """Files that a reader opens to find ``value``."""
    return sum(len(split.files) for split in table.plan_scan(filter=[(column, "=", value)]))


def files_of(table: Table) -> int:
    return sum(len(split.files) for split in table.plan_scan())


def column(table: Table, name: str) -> list[Any]:
    """Values in the order of the files."""
    return list(table.to_arrow(columns=[name]).column(name).to_pylist())


# -- what it does --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("strategy", "budget"),
    one_in(4, product(("order", "zorder", "hilbert"), ("256 mb", "1 mb", "128 kb"))),  # in memory, in ranges, in runs
)
def test_filters_skip_files_and_nothing_else_changes(tmp_path: Path, strategy: str, budget: str) -> None:
    table = piled_up(tmp_path, dredge__merge_budget=budget)
    before = content(table)
    assert opened(table, "a", 500) == opened(table, "b", 500) == files_of(table)
    report = table.compact(order_by=["a", "b"], strategy=strategy)
    assert content(table) == before
    assert (report.rows_in, report.rows_out, report.rows_dropped) == (12_000, 12_000, {})
    assert report.files_out == files_of(table) >= 5
    assert (report.commits, report.verification.level) == (1, "V1")
    newest = table.latest_snapshot()
    assert newest is not None and newest.commit_kind is CommitKind.COMPACT
    assert (newest.delta_record_count, newest.total_record_count) == (0, 12_000)
    hits = opened(table, "a", 500), opened(table, "b", 500)
    if strategy == "order":
        assert hits[0] == 1 and hits[1] == files_of(table)
    else:
        assert max(hits) <= files_of(table) // 2 + 1
    assert not strays(table)
    assert_whole(table)


def test_order_is_that_of_the_values_with_nulls_first(tmp_path: Path) -> None:
    table = piled_up(tmp_path, dredge__merge_budget="1 mb")
    table.compact(order_by=["b", "s"])
    found = list(zip(column(table, "b"), column(table, "s"), strict=True))
    assert found == sorted(found, key=lambda row: [(value is not None, value) for value in row])


def test_partitions_are_sorted_on_their_own_and_can_be_chosen(tmp_path: Path) -> None:
    table = heap(tmp_path, partitioned=True)
    for seed in range(2):
        for dt in ("x", "y"):
            table.write(rows(100, seed, dt))
    before = content(table)
    report = table.compact(order_by=["a"], partitions=[{"dt": "y"}])
    assert (report.files_in, report.files_out, list(report.verification.digests)) == (2, 1, ["dt=y/bucket-0"])
    report = table.compact(order_by=["a"])
    assert (report.files_in, report.files_out, report.commits) == (3, 2, 1)
    assert content(table) == before


def test_a_plan_says_what_and_why_and_survives_json(tmp_path: Path) -> None:
    table = heap(tmp_path)
    table.write(rows(50))
    table.write(rows(50, 1))
    plan = table.plan_maintenance("compact", order_by=["a", "s"], strategy="zorder")
    (item,) = plan.items
    assert item.reason == "2 files rewritten along a zorder curve over a, s"
    assert (item.trigger, item.order_by, item.strategy, item.rows_in) == ("sort", ("a", "s"), "zorder", 100)
    other = table.plan_maintenance("compact", order_by=["s", "a"], strategy="zorder")
    assert len({plan.hash, other.hash, table.plan_maintenance("compact", full=True).hash}) == 3
    report = table.apply(MaintenancePlan.from_json(plan.to_json()))
    assert report.files_in == 2
    (line,) = table.ledger()[-1].lines
    assert (line["trigger"], line["reason"]) == ("sort", item.reason)
    assert heap(tmp_path / "empty").compact(order_by=["a"]).snapshot_id is None


def test_a_file_of_an_older_schema_is_sorted_too(tmp_path: Path) -> None:
    from lsm_core import SchemaChange

    table = heap(tmp_path)
    table.write(rows(60))
    catalog(tmp_path).alter_table(
        "db.h", [SchemaChange.add_column("n", pa.int64()), SchemaChange.update_type("a", pa.int64())]
    )
    table = catalog(tmp_path).table("db.h")
    table.write(rows(60, 1).append_column("n", pa.array(range(60))))
    before = content(table)
    table.compact(order_by=["n", "a"], strategy="hilbert")
    assert content(table) == before


# -- what it refuses -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"order_by": ["dt"]}, InvalidOption, "no partition column"),
        ({"order_by": ["a", "nope"]}, ColumnNotFound, "nope"),
        ({"order_by": ["tags"]}, UnsupportedFeature, "sorting by column 'tags' of type ARRAY<INT>"),
        ({"order_by": []}, InvalidOption, "one column or several"),
        ({"order_by": ["a", "a"]}, InvalidOption, "different ones"),
        ({"order_by": ["a"], "strategy": "peano"}, InvalidOption, "order, zorder, hilbert"),
        ({"order_by": ["a"], "strategy": "hilbert"}, InvalidOption, "at least two columns"),
        (
            {"strategy": "zz"},
            InvalidOption,
            "'strategy' of table .* cannot be 'zz'; accepted: order, zorder, hilbert",
        ),
        ({"strategy": "zorder"}, InvalidOption, "'order_by' of table .*'clustering.columns' names none"),
        ({"strategy": 7}, InvalidOption, "order, zorder, hilbert"),
        ({"order_by": ["a"], "buckets": [0]}, InvalidOption, "no buckets to choose"),
    ],
)
def test_what_cannot_be_sorted_by_is_named(
    tmp_path: Path, arguments: dict[str, Any], error: type[DredgeError], text: str
) -> None:
    table = heap(tmp_path, partitioned=True)
    table.write(rows(20))
    before = on_disk(table)
    with pytest.raises(error, match=text):
        table.compact(**arguments)
    assert on_disk(table) == before


@pytest.mark.parametrize(
    ("option", "value"),
    [("zorder.var-length-contribution", "0"), ("sort-compaction.local-sample.magnification", "0"),
     ("sort-compaction.range-strategy", "width")],
)  # fmt: skip
def test_options_that_make_no_sense_are_named(tmp_path: Path, option: str, value: str) -> None:
    table = heap(tmp_path)
    table.write(rows(20))
    with pytest.raises(InvalidOption, match=option):
        table.copy({option: value}).compact(order_by=["s", "a"], strategy="zorder")


def test_tables_whose_rows_have_an_order_already_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedFeature, match="primary key"):
        keyed(tmp_path).compact(order_by=["v"])
    options = {"bucket": "2", "bucket-key": "a"}
    bucketed = catalog(tmp_path).create_table("db.b", Schema(FIELDS, [], [], options))
    with pytest.raises(UnsupportedFeature, match="append tables with buckets"):
        bucketed.compact(order_by=["b"])


# -- what others do meanwhile --------------------------------------------------------------------------------------------


def meanwhile(action: Callable[[], object]) -> Callable[..., Iterator[BucketResult]]:
    """A runner that lets somebody else act after the work is done and before it is committed."""

    def run(store: TableStore, tasks: Sequence[BucketTask]) -> Iterator[BucketResult]:
        results = [run_bucket_task(store, task) for task in tasks]
        action()
        yield from results

    return run


def test_rows_inserted_between_plan_and_apply_stay_and_are_not_sorted(tmp_path: Path) -> None:
    table = piled_up(tmp_path, 300)
    plan = table.plan_maintenance("compact", order_by=["a"])
    table.write(rows(70, 9))
    before = content(table)
    report = table.apply(plan)
    assert (report.rows_in, report.stale) == (900, ())
    assert content(table) == before


def test_rows_inserted_between_reading_and_committing_stay(tmp_path: Path) -> None:
    """What a dynamic overwrite loses (Paimon #4802)."""
    table = piled_up(tmp_path, 300)
    plan = table.plan_maintenance("compact", order_by=["a", "b"], strategy="zorder")
    before = content(table)
    new = rows(70, 9)
    report = apply_plan(table.store, plan, meanwhile(lambda: table.write(new)))
    assert (report.rows_out, report.commits) == (900, 1)
    assert content(table) == sorted([*before, *zip(*new.to_pydict().values(), strict=True)], key=repr)


@pytest.mark.parametrize(
    "other",
    [
        lambda table: table.compact(full=True),
        lambda table: table.compact(order_by=["b"]),
        lambda table: table.write(rows(5, 8), overwrite=True),
    ],
    ids=["compaction", "other sort", "overwrite"],
)
@pytest.mark.parametrize("when", ["before", "during"])
def test_whoever_takes_the_inputs_first_wins_and_the_sort_leaves_nothing(
    tmp_path: Path, other: Callable[[Table], object], when: str
) -> None:
    table = piled_up(tmp_path, 300, target="1 mb")
    plan = table.plan_maintenance("compact", order_by=["a"])
    if when == "before":
        other(table)
        report = table.apply(plan)
    else:
        report = apply_plan(table.store, plan, meanwhile(lambda: other(table)))
    (stale,) = report.stale
    assert report.snapshot_id is None
    assert "is gone" in stale.text if when == "before" else "took its inputs" in stale.text
    assert not strays(table)
    assert_whole(table)
    assert len(content(table)) == table.latest_snapshot().total_record_count


def test_of_two_partitions_the_one_still_there_is_committed(tmp_path: Path) -> None:
    table = heap(tmp_path, partitioned=True)
    for seed in range(2):
        for dt in ("x", "y"):
            table.write(rows(50, seed, dt))
    before = content(table)
    plan = table.plan_maintenance("compact", order_by=["a"])
    report = apply_plan(table.store, plan, meanwhile(lambda: table.compact(order_by=["b"], partitions=[{"dt": "x"}])))
    assert [item.partition_text for item in report.stale] == ["dt=x"]
    assert (report.commits, report.rows_out) == (1, 100)
    assert content(table) == before
    assert not strays(table)


def test_a_plan_of_other_options_is_stale(tmp_path: Path) -> None:
    table = piled_up(tmp_path, 50)
    plan = table.copy({"zorder.var-length-contribution": "4"}).plan_maintenance(
        "compact", order_by=["s"], strategy="zorder"
    )
    with pytest.raises(PlanStale, match="var-length"):
        table.apply(plan)


# -- what goes wrong -----------------------------------------------------------------------------------------------------


def test_a_damaged_input_is_named_and_nothing_stays_behind(tmp_path: Path) -> None:
    table = piled_up(tmp_path)
    victim = sorted(Path(table.store.root).rglob("bucket-0/*.parquet"))[1]
    victim.write_bytes(victim.read_bytes()[:-40])
    before = on_disk(table, without=("dredge",))
    with pytest.raises(CorruptFile, match=victim.name):
        table.compact(order_by=["a"])
    assert on_disk(table, without=("dredge",)) == before


def test_a_row_that_is_lost_on_the_way_stops_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from lsm_core.files import AppendFileWriter

    table = piled_up(tmp_path, 300)
    before = on_disk(table, without=("dredge",))
    plain = AppendFileWriter.write

    def swapping(writer: AppendFileWriter, batch: pa.RecordBatch) -> None:
        plain(writer, batch.set_column(0, "a", batch.column("a").take(pa.array([1, 0, *range(2, batch.num_rows)]))))

    monkeypatch.setattr(AppendFileWriter, "write", swapping)
    with pytest.raises(VerificationFailed, match="V1"):
        table.compact(order_by=["b"])
    monkeypatch.setattr(AppendFileWriter, "write", lambda writer, batch: plain(writer, batch.slice(1)))
    with pytest.raises(VerificationFailed, match="V0"):
        table.compact(order_by=["b"])
    assert on_disk(table, without=("dredge",)) == before


def test_a_disk_that_fills_up_leaves_the_table_as_it_was(tmp_path: Path) -> None:
    class Full(LocalFileIO):
        made = 0

        def open_output(self, path: str) -> Any:
            self.made += 1
            if self.made > 2:
                raise StorageFull(path)
            return super().open_output(path)

    table = piled_up(tmp_path)
    before = on_disk(table, without=("dredge",))
    full = Full()
    with pytest.raises(StorageFull):
        with_io(table, full).compact(order_by=["a"])
    assert full.made == 3
    assert on_disk(table, without=("dredge",)) == before
