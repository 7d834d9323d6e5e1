"""V3's second path says of every merge engine what a read says, and says the same of its compacted files."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from lsm_core import Catalog, Table
from lsm_core.errors import UnsupportedFeature
from lsm_core.format.manifest import table_to_entries
from lsm_core.metadata import manifests, snapshots
from lsm_core.spark import spark_verify as verify_module
from lsm_core.spark import verify_table
from lsm_core.spark.merged_view import merged_view
from tests.spark.tables import live_paths, make_table, rewrite
from tests.support.samples import one_in

pytestmark = pytest.mark.spark

FIELDS = pa.schema(
    [
        pa.field("k", pa.int32(), nullable=False),
        *[(name, pa.int32()) for name in ("i1", "i2", "i3")],
        ("l1", pa.int64()),
        *[("d1", pa.float64()), ("d2", pa.float64())],
        ("m1", pa.decimal128(9, 2)),
        *[(name, pa.string()) for name in ("s1", "s2", "s3", "s4")],
        *[("b1", pa.bool_()), ("b2", pa.bool_())],
        *[("a1", pa.list_(pa.string())), ("a2", pa.list_(pa.int32()))],
    ]
)
GROUPS = {
    "merge-engine": "partial-update",
    "fields.i1.sequence-group": "s1,l1,m1,a2",
    "fields.d1,i2.sequence-group": "s2,i3,s3,b1,d2",
    "fields.l1.aggregate-function": "sum",
    "fields.m1.aggregate-function": "sum",
    "fields.i3.aggregate-function": "last_non_null_value",
    "fields.s3.aggregate-function": "last_value",
    "fields.d2.aggregate-function": "sum",
    "fields.a2.aggregate-function": "collect",
}
LATE = {
    "merge-engine": "partial-update",
    "fields.i1.sequence-group": "s1,s2,s3,i2,i3,b1,a1",
    "fields.s1.aggregate-function": "first_value",
    "fields.s2.aggregate-function": "first_non_null_value",
    "fields.s3.aggregate-function": "listagg",
    "fields.i2.aggregate-function": "max",
    "fields.i3.aggregate-function": "product",
    "fields.b1.aggregate-function": "bool_and",
    "fields.a1.aggregate-function": "collect",
    "fields.a1.distinct": "true",
}
AGGREGATES = {
    "merge-engine": "aggregation",
    "fields.default-aggregate-function": "sum",
    "fields.i2.aggregate-function": "last_value",
    "fields.i3.aggregate-function": "last_non_null_value",
    "fields.a2.aggregate-function": "collect",
}
IGNORING = {
    f"fields.{column}.{option}": value
    for column, function in {
        "s1": "max", "s2": "min", "s3": "listagg", "s4": "listagg", "b1": "bool_and", "b2": "bool_or", "a1": "collect",
        "d1": "max", "d2": "first_value",
    }.items()
    for option, value in (("aggregate-function", function), ("ignore-retract", "true"))
}  # fmt: skip
CASES: dict[str, tuple[dict[str, str], str]] = {
    "partial-update": ({"merge-engine": "partial-update"}, "+I"),
    "partial-update, remove on delete": (
        {"merge-engine": "partial-update", "partial-update.remove-record-on-delete": "true"},
        "all",
    ),
    "partial-update, ignore delete": ({"merge-engine": "partial-update", "ignore-delete": "true"}, "all"),
    "groups": (GROUPS, "all"),
    "groups, remove on group": ({**GROUPS, "partial-update.remove-record-on-sequence-group": "d1"}, "all"),
    "groups, late data": (LATE, "+I"),
    "groups, late data, as 2.1": ({**LATE, "dredge.paimon-version": "2.1"}, "+I"),
    "aggregation": (
        {
            **AGGREGATES,
            **IGNORING,
            "fields.a1.distinct": "true",
            "fields.s3.list-agg-delimiter": ".*;",
            "fields.s4.distinct": "true",
        },
        "all",
    ),
    "aggregation, as 2.0": (
        {**AGGREGATES, **IGNORING, "fields.s4.distinct": "true", "dredge.paimon-version": "2.0"},
        "all",
    ),
    "aggregation by sequence, remove on delete": (
        {
            "merge-engine": "aggregation",
            "sequence.field": "d1,i1",
            "fields.l1.aggregate-function": "count",
            "fields.m1.aggregate-function": "sum",
            "aggregation.remove-record-on-delete": "true",
        },
        "-D",
    ),
    "first-row": ({"merge-engine": "first-row", "ignore-delete": "true"}, "all"),
}
WORDS = np.array(["a", "b", "a,b", "c,a", "", "  ", "é", "x.*;y", "\t", "\u3000\x1c", "\xa0"], dtype=object)


def some(random: np.random.Generator, values: npt.NDArray[Any], n: int, kind: pa.DataType) -> pa.Array:
    """Values with nulls among them."""
    chosen = values[random.integers(0, len(values), n)]
    return pa.array(chosen, kind, mask=random.random(n) < 0.3)


def lists(random: np.random.Generator, items: pa.Array, n: int) -> pa.Array:
    offsets = np.sort(random.integers(0, len(items) + 1, n - 1))
    made = pa.ListArray.from_arrays(pa.array(np.concatenate(([0], offsets, [len(items)])), pa.int32()), items)
    return pa.array(made, mask=None).take(pa.array(np.arange(n), mask=random.random(n) < 0.3))


def batch(random: np.random.Generator, n: int) -> pa.Table:
    """Rows of FIELDS over a few keys: ties, nulls, blanks, -0.0 and NaN."""
    small = np.arange(-2, 4)
    floats = np.array([0.0, -0.0, 1.5, -3.0, np.nan, 1e300])
    decimals = np.array([Decimal("1.10"), Decimal("-0.01"), Decimal("9999999.99")], dtype=object)
    columns: list[pa.Array] = [pa.array(random.integers(0, 60, n), pa.int32())]
    for field in list(FIELDS)[1:]:
        if pa.types.is_list(field.type):
            inner = WORDS if pa.types.is_string(field.type.value_type) else small
            columns.append(lists(random, some(random, inner, 2 * n, field.type.value_type), n).cast(field.type))
        elif pa.types.is_boolean(field.type):
            columns.append(some(random, np.array([True, False]), n, field.type))
        elif pa.types.is_floating(field.type):
            columns.append(some(random, floats, n, field.type))
        elif pa.types.is_decimal(field.type):
            columns.append(some(random, decimals, n, field.type))
        else:
            columns.append(some(random, WORDS if pa.types.is_string(field.type) else small, n, field.type))
    return pa.table(columns, schema=FIELDS)


def written(root: Path, options: Mapping[str, str], kinds: str) -> Table:
    """Six commits of random rows; a full compaction after the third leaves a run above level 0."""
    table = make_table(root, fields=FIELDS, options={"bucket": "2", "write-only": "true", **options})
    random = np.random.default_rng(11)
    drawn = {"+I": ["+I"], "-D": ["+I", "+U", "-D"], "all": ["+I", "+U", "-U", "-D"]}[kinds]
    for number in range(6):
        chosen = random.choice(drawn, 90, p=[0.7, *[0.3 / (len(drawn) - 1)] * (len(drawn) - 1)] if drawn[1:] else None)
        table.write(batch(random, 90), row_kinds=pa.array(chosen))
        if number == 2:
            table.compact(full=True)
    return table


def said(rows: pa.Table, sets: bool = False) -> list[str]:
    """Rows as sorted text; elements of ``a1`` sorted too if they are sets."""
    found = []
    for row in rows.to_pylist():
        if sets and row["a1"] is not None:
            row["a1"] = sorted(row["a1"], key=repr)
        found.append(repr([row[name] for name in FIELDS.names]))
    return sorted(found)


def view_of(spark: Any, table: Table, columns: Sequence[str] = FIELDS.names) -> pa.Table:
    """What Spark makes of the newest snapshot's files."""
    snapshot = snapshots.latest(table.store)
    assert snapshot is not None
    entries = table_to_entries(manifests.live_entries(table.store, snapshot))
    files = [(entry.bucket, entry) for entry in sorted(entries, key=lambda e: e.file.max_sequence_number)]
    return merged_view(spark, table.store, files).where("__dredge_row").select(*columns).toArrow()


_SAMPLE = ("groups, late data", "aggregation by sequence, remove on delete")


@pytest.mark.parametrize(
    "case", [case if case in _SAMPLE else pytest.param(case, marks=pytest.mark.soak) for case in CASES]
)
def test_spark_says_what_a_read_says_and_the_same_after_compaction(spark: Any, tmp_path: Path, case: str) -> None:
    options, kinds = CASES[case]
    table = written(tmp_path, options, kinds)
    sets = "fields.a1.distinct" in options
    if options["merge-engine"] != "first-row":  # its readers do not see level 0
        assert said(view_of(spark, table), sets) == said(table.to_arrow(), sets)
    before = snapshots.latest_id(table.store)
    assert before is not None
    after = table.compact(full=True).snapshot_id
    assert after == before + 1
    report = verify_table(spark, table, before, after)
    assert report.ok, report.examples
    assert report.rows_b == table.to_arrow().num_rows > 0


@pytest.mark.parametrize("case", one_in(2, ["groups", "aggregation"]))
def test_a_wrong_sum_after_publishing_is_seen(spark: Any, tmp_path: Path, case: str) -> None:
    options, kinds = CASES[case]
    table = written(tmp_path, options, kinds)
    report = table.compact(full=True)

    def wrong(data: pa.Table) -> pa.Table:
        at = data.schema.get_field_index("l1")
        one_more = np.where(np.arange(data.num_rows) == np.argmax(data.column("l1").is_valid().to_numpy()), 1, 0)
        return data.set_column(at, data.schema.field(at), pc.add(data.column("l1"), pa.array(one_more)))

    rewrite(live_paths(table, level_at_least=1)[0], wrong)
    assert report.snapshot_id is not None
    found = verify_table(spark, table, report.base_snapshot, report.snapshot_id)
    assert not found.ok
    assert len(found.differences) == 1


@pytest.mark.parametrize(
    ("column", "kind", "function"),
    [("v", pa.float64(), "product"), ("v", pa.decimal128(38, 2), "sum"), ("v", pa.list_(pa.float64()), "collect")],
)
def test_what_spark_cannot_say_exactly_is_refused_by_name(
    spark: Any, tmp_path: Path, column: str, kind: pa.DataType, function: str
) -> None:
    fields = pa.schema([pa.field("k", pa.int32(), nullable=False), (column, kind)])
    options = {"merge-engine": "aggregation", f"fields.{column}.aggregate-function": function}
    table = make_table(tmp_path, fields=fields, options=options)
    rows = pa.table({"k": pa.array([1], pa.int32()), column: pa.nulls(1, kind)}, schema=fields)
    table.write(rows)
    table.write(rows)
    with pytest.raises(UnsupportedFeature, match=f"column '{column}' .* aggregate function '{function}' on Spark"):
        verify_table(spark, table, 1, 2)


def test_nulls_and_nan_inside_arrays_are_told_apart(spark: Any, tmp_path: Path) -> None:
    fields = pa.schema([pa.field("k", pa.int32(), nullable=False), ("v", pa.list_(pa.float64()))])
    table = make_table(tmp_path, fields=fields, options={"bucket": "1"})
    values = [[], [None], None, [0.0], [-0.0], [float("nan"), None]]
    for number in range(2):
        table.write(pa.table({"k": range(number, 6), "v": values[number:]}, schema=fields))
    compacted = table.compact(full=True).snapshot_id
    assert compacted is not None
    assert verify_table(spark, table, 2, compacted).ok
    path = live_paths(table)[0]
    for changed in ([[None], [None]], [[], []], [[], None], [[0.0], [0.0]]):
        old = pq.read_table(path, partitioning=None)
        at, swap = old.schema.get_field_index("v"), old.column("v").to_pylist()
        first = 3 if changed == [[0.0], [0.0]] else 0
        swap[first : first + 2] = changed
        rewrite(path, lambda data, at=at, swap=swap: data.set_column(at, data.schema.field(at), pa.array(swap, data.schema.field(at).type)))  # fmt: skip
        assert not verify_table(spark, table, 2, compacted).ok
        pq.write_table(old, path)


LEVELS: dict[str, dict[str, str]] = {
    "aggregation": {"merge-engine": "aggregation", "fields.a.aggregate-function": "sum"},
    "partial-update": {
        "merge-engine": "partial-update",
        "fields.s.sequence-group": "a",
        "fields.a.aggregate-function": "sum",
    },
    "deduplicate": {"sequence.field": "s"},
    "deduplicate, asked to look up later": {"sequence.field": "s", "num-levels": "6", "changelog-producer": "none"},
    "first-row": {"merge-engine": "first-row"},
}


@pytest.mark.paimon_java
@pytest.mark.parametrize("kind", one_in(6, LEVELS))
def test_of_the_versions_above_level_0_only_the_lowest_counts(
    spark: Any, tmp_path: Path, java: Callable[..., dict[str, Any]], kind: str
) -> None:
    """Java's compactions that look up merge what they find above into the level below: the others would count twice."""
    fields = [{"name": n, "type": t} for n, t in (("k", "INT NOT NULL"), ("a", "INT"), ("s", "INT"))]
    late = kind.endswith("later")
    trigger = {"num-sorted-run.compaction-trigger": "2" if late else "5"}
    options = {"bucket": "1", "changelog-producer": "lookup", **trigger, **LEVELS[kind]}
    java("create", tmp_path, schema={"fields": fields, "primaryKeys": ["k"], "options": options})
    java("write", tmp_path, rows=[{"k": k, "a": 2, "s": 5} for k in range(3000)], compact="full")
    for compact in ("none", "none", "minor") if late else ("minor",):
        java("write", tmp_path, rows=[{"k": k, "a": 10, "s": 4} for k in (7, 3000)], compact=compact)
    if late:
        java("alter", tmp_path, changes=[{"change": "set_option", "key": "changelog-producer", "value": "lookup"}])
    newest = [{"k": k, "a": 100, "s": 3 if late else 6} for k in (7, 8, 3000, 3001)]
    java("write", tmp_path, rows=newest, compact="none")
    assert {file["level"] for file in java("files", tmp_path)["files"]} == {0, 4, 5}
    table = Catalog(str(tmp_path)).table("db.t")
    seen = sorted(tuple(row.values()) for row in view_of(spark, table, ["k", "a", "s"]).to_pylist())
    before = snapshots.latest_id(table.store)
    java("compact", tmp_path, full=True)
    assert seen == sorted((row["k"], row["a"], row["s"]) for row in java("read", tmp_path)["rows"])
    assert {k: a for k, a, _ in seen}[7] == {
        "deduplicate": 100,
        "first-row": 2,
        "aggregation": 112,
        "partial-update": 112,
    }.get(kind, 10)
    after = snapshots.latest_id(table.store)
    assert before is not None and after == before + 1
    report = verify_table(spark, table, before, after)
    assert report.ok, report.examples


ALONE: dict[str, dict[str, str]] = {
    "groups": {"merge-engine": "partial-update", "fields.g.sequence-group": "a"},
    "sums": {"merge-engine": "aggregation", "fields.a.aggregate-function": "sum"},
}


@pytest.mark.parametrize("kind", one_in(2, ALONE))
def test_the_merge_of_an_only_version_is_no_difference(spark: Any, tmp_path: Path, kind: str) -> None:
    """A compaction with lookups makes a row of a retract of nothing, and nulls of a group without its sequence field."""
    fields = pa.schema([pa.field("k", pa.int64(), nullable=False), ("g", pa.int64()), ("a", pa.int64())])
    options = {"bucket": "1", "write-only": "true", "changelog-producer": "lookup", **ALONE[kind]}
    table = make_table(tmp_path, fields=fields, options=options)
    rows = pa.table([[1, 2], pa.nulls(2, pa.int64()), [5, 7]], schema=fields)
    table.write(rows, row_kinds=pa.array(["-D", "+I"]))
    table.write(pa.table([[3], [1], [1]], schema=fields))
    before = sorted(table.to_arrow()["k"].to_pylist())
    table.compact(full=True)
    after = table.to_arrow().to_pylist()
    assert {row["k"]: row["a"] for row in after} == ({1: -5, 2: 7, 3: 1} if kind == "sums" else {2: None, 3: 1})
    report = verify_table(spark, table, 2, 3)
    assert report.ok, report.examples
    assert before == [2, 3]

    def wrong(data: pa.Table) -> pa.Table:
        at = data.schema.get_field_index("a")
        return data.set_column(at, data.schema.field(at), pa.array([9, *data["a"].to_pylist()[1:]], pa.int64()))

    rewrite(live_paths(table, level_at_least=1)[0], wrong)
    assert not verify_table(spark, table, 2, 3).ok


def test_the_second_path_shares_no_code_with_the_merge() -> None:
    room = Path(verify_module.__file__).parent
    for path in (Path(verify_module.__file__), *(room / "view").glob("*.py")):
        source = path.read_text()
        assert not [name for name in ("lsm_core.merge", "lsm_core.read ", "maintenance.reference") if name in source]
