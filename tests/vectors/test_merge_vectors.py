"""Merging as Paimon's own tests want it, for every engine and aggregate function."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lsm_core.errors import DredgeError, InvalidData, InvalidOption
from lsm_core.format.schema import DataField, TableSchema
from lsm_core.merge import (
    MergeFunction,
    NormalisedKeys,
    RunInput,
    merge_function,
    merge_streams,
    merge_unsorted,
)
from lsm_core.merge.changelog import Against, ChangelogMerger, ChangelogRules, _Versions
from lsm_core.merge.engines.fold import FoldInput
from lsm_core.merge.functions import (
    AGG,
    RETRACT,
    Accumulators,
    AggregateFunction,
    GroupError,
    aggregate_function,
)
from lsm_core.merge.rows import Piece, Rows, merge_order
from lsm_core.options import TableOptions
from lsm_core.types import kinds_from_text, kinds_to_text, parse
from tests.vectors.cases import Case, cases, require_known
from tests.vectors.rows import as_cases, kv_batch
from tests.vectors.sketches import with_bytes
from tests.vectors.values import arrow_value

LOOKUP = {"lookup_merge", "pick_high_level", "contains_level0"}


def function_for(case: Case) -> MergeFunction:
    """The merge function over one key column and one value column, as the case names them."""
    (key, _), (value, kind) = case.get("columns") or [["k0", "BIGINT"], ["value", "BIGINT"]]
    fields = (DataField(0, key, parse("BIGINT NOT NULL")), DataField(1, value, parse(kind)))
    options = {**(case.get("options") or {}), "merge-engine": case["merge_engine"]}
    return merge_function(TableSchema(0, fields, 1, primary_keys=(key,)), options, "db.t")


@pytest.mark.parametrize("case", cases("sort_merge"))
def test_sort_merge(case: Case) -> None:
    """`spill_threshold` and `with_disk` must not change the result, and cannot: nothing is buffered row by row here."""
    require_known("sort_merge", case)
    function = function_for(case)
    if case["op"] in LOOKUP:
        _lookup(case, function)
        return
    names = {"k0": "value"} if "columns" not in case else {case["columns"][0][0]: case["columns"][1][0]}
    ((key, value),) = names.items()

    def batch(rows: list[Case]) -> pa.RecordBatch:
        made = kv_batch(rows)
        return made.rename_columns([{"_KEY_k0": f"_KEY_{key}", "value": value}.get(n, n) for n in made.schema.names])

    def cases_of(found: pa.RecordBatch | pa.Table) -> list[Case]:
        back = {f"_KEY_{key}": "_KEY_k0", value: "value"}
        return as_cases(found.rename_columns([back.get(n, n) for n in found.schema.names]))

    if case["op"] in {"write_buffer", "merge_one_key"}:
        expected = case["expect"] if case["op"] == "write_buffer" else [case["expect"]]
        assert cases_of(merge_unsorted(pa.Table.from_batches([batch(case["inputs"])]), function)) == expected
        return
    assert case["op"] == "sort_merge"
    for size in (1, 2, 3, 7, 1000):
        inputs = [
            RunInput(iter([batch(rows[at : at + size]) for at in range(0, len(rows), size)]), 0, age)
            for age, rows in enumerate(case["inputs"])
        ]
        merged = list(merge_streams(inputs, function))
        assert [row for part in merged for row in cases_of(part)] == case["expect"]


def _lookup(case: Case, function: MergeFunction) -> None:
    """Level-0 rows and the lowest level above 0 take part, rows of unknown level all do."""
    pieces = _pieces(kv_batch(case["inputs"]), [row["level"] for row in case["inputs"]], function)
    if case["op"] == "pick_high_level":
        versions = _Versions.of(pieces, function).with_lowest_high_only()
        (row,) = versions.row_of(versions.levels > 0)
        value = versions.rows.column("value", np.array([row]))[0].as_py()
        assert {"level": int(versions.levels[row]), "value": value} == case["expect"]
    elif case["op"] == "contains_level0":
        versions = _Versions.of(pieces, function)
        assert versions.any(versions.levels == 0).tolist() == [case["expect"]]
    else:
        rules = ChangelogRules(Against.HIGH_LEVELS, produces=False)
        (rows,) = ChangelogMerger(rules, function, 5, None, lambda _: None).merge(pieces)
        assert rows.column("value").to_pylist() == [case["expect"]["value"]]


def _pieces(batch: pa.RecordBatch, levels: list[int], function: MergeFunction) -> list[Piece]:
    """A piece a row, each of its own level."""
    rows = [batch.slice(place, 1) for place in range(batch.num_rows)]
    return [
        Piece(row, function.key_spec.keys(row), level, age)
        for age, (row, level) in enumerate(zip(rows, levels, strict=True))
    ]


@pytest.mark.parametrize("case", cases("partial_update"))
def test_partial_update(case: Case) -> None:
    require_known("partial_update", case)
    columns, keys = case["columns"], case["primary_key"]
    fields = tuple(DataField(i, name, parse(kind)) for i, (name, kind) in enumerate(columns))
    schema = TableSchema(0, fields, len(fields) - 1, primary_keys=tuple(keys))
    options = {**case["options"], "merge-engine": "partial-update"}
    refused = case.get("expect_error")
    if refused and "read_columns" not in case:
        with pytest.raises(InvalidOption, match=refused.get("column", "sequence group")):
            merge_function(schema, options, "db.t")
        return
    function = merge_function(schema, options, "db.t")
    names = [name for name, _ in columns]
    if "expect_effective_read_columns" in case:
        names = list(function.effective_columns(case["read_columns"]))
        assert names == case["expect_effective_read_columns"]
    elif refused:
        names = case["read_columns"]
        rows = [{"seq": i, "kind": "+I", "row": [1] * len(names)} for i in range(2)]
        with pytest.raises(InvalidData, match="needed to merge"):
            _merged_row(function, schema, keys, names, rows, len(rows))
        return
    added: list[Case] = []
    for step in case.get("steps", []):
        if "add" in step:
            added.append(step["add"])
        elif "expect" in step:
            expected = dict(step["expect"])
            if "kind_derived" in expected:
                expected["kind"] = expected.pop("kind_derived")
            for size in (1, 2, len(added)):
                found = _merged_row(function, schema, keys, names, added, size)
                assert {what: found[what] for what in expected} == expected
        else:
            assert "reset" in step
            added = []


def _merged_row(
    function: MergeFunction, schema: TableSchema, keys: list[str], names: list[str], added: list[Case], size: int
) -> Case:
    """The versions of one key through windows of ``size`` rows: `kind`, `seq` and `row` of what comes out.

    The key is one for all, whatever the columns say.
    """
    columns: dict[str, pa.Array] = {f"_KEY_{key}": pa.array([1] * len(added), pa.int32()) for key in keys}
    columns["_SEQUENCE_NUMBER"] = pa.array([row["seq"] for row in added], pa.int64())
    columns["_VALUE_KIND"] = kinds_from_text(pa.array([row["kind"] for row in added], pa.string()))
    for place, name in enumerate(names):
        kind = schema.arrow_schema.field(name).type
        columns[name] = pa.array([arrow_value(row["row"][place], kind) for row in added], kind)
    whole = pa.RecordBatch.from_pydict(columns)
    batches = [whole.slice(at, size) for at in range(0, len(added), size)]
    if len(added) > 1:
        table = pa.Table.from_batches(merge_streams([RunInput(iter(batches))], function, batch_rows=1))
    else:
        # readers pass a lone version by the engine; these cases ask the engine itself
        rows = Rows.of([Piece(whole, function.key_spec.keys(whole), 0, 0)])
        groups, kinds = merge_order(rows, function.key_spec), rows.integers("_VALUE_KIND", np.int8)
        table = pa.Table.from_batches(function.fold(FoldInput(rows, groups, kinds, bypass=False)).batches)
    values = [[_plain(v) for v in table.column(name).to_pylist()] for name in names]
    (kind,) = kinds_to_text(table.column("_VALUE_KIND")).to_pylist()
    (sequence,) = table.column("_SEQUENCE_NUMBER").to_pylist()
    return {"kind": kind, "seq": sequence, "row": [value for (value,) in values]}


def _plain(found: Any) -> Any:
    return found.hex() if isinstance(found, bytes) else found


@pytest.mark.parametrize("case", cases("aggregators"))
def test_aggregators(case: Case) -> None:
    require_known("aggregators", case)
    if case.get("op") == "merge_rows":
        _merge_rows(case)
        return
    options = case.get("options", {})
    case = with_bytes(case, case["function"])
    if case.get("op") == "create" and "error" in (case["expect"] or {}):
        with pytest.raises(DredgeError):
            aggregate_function(case["function"], case["type"], "f", options)
        return
    function = aggregate_function(case["function"], case["type"], "f", options)
    if "steps" in case:
        _steps(function, case)
    elif case["op"] == "fold":
        values = pa.array([arrow_value(raw, function.arrow_type) for raw in case["inputs"]], function.arrow_type)
        _same(function, function.fold(values, np.array([0, len(values)])), case)
    elif case["op"] in {"agg", "retract"}:
        _one_call(function, case)
    else:
        assert case["op"] == "create"


def _merge_rows(case: Case) -> None:
    fields = tuple(DataField(i, name, parse(kind)) for i, (name, kind) in enumerate(case["columns"]))
    schema = TableSchema(0, fields, len(fields) - 1, primary_keys=tuple(case["primary_key"]))
    function = merge_function(schema, {**case["options"], "merge-engine": "aggregation"}, "db.t")
    names = [name for name, _ in case["columns"]]
    added = [{"seq": i, **row} for i, row in enumerate(case["rows"])]
    for size in (1, 2, len(added)):
        assert _merged_row(function, schema, case["primary_key"], names, added, size)["row"] == case["expect"]


def _one_call(function: AggregateFunction, case: Case) -> None:
    kind = function.arrow_type
    failure = isinstance(case["expect"], dict) and "error" in case["expect"]
    placeholder = failure and "retraction" in case["expect"]["error"]
    raw = (None, None) if placeholder else (case.get("accumulator"), case.get("input"))
    accumulator, given = (pa.array([arrow_value(value, kind)], kind) for value in raw)
    call = function.agg if case["op"] == "agg" else function.retract
    if failure:
        with pytest.raises(GroupError):
            call(accumulator, given)
        return
    _same(function, call(accumulator, given), case)


def _steps(function: AggregateFunction, case: Case) -> None:
    kind = function.arrow_type
    state = fresh = Accumulators(pa.nulls(1, kind), np.zeros(1, np.bool_))
    for step in case["steps"]:
        if step["op"] == "reset":
            state = fresh
            continue
        given = pa.array([arrow_value(step.get("input"), kind)], kind)
        if not case.get("carry"):
            state = Accumulators(pa.array([arrow_value(step.get("accumulator"), kind)], kind), state.seen)
        ops = np.array([{"agg": AGG, "retract": RETRACT}[step["op"]]], np.int8)
        if isinstance(step.get("expect"), dict) and "error" in step["expect"]:
            with pytest.raises(GroupError):
                function.fold_ops(given, np.array([0, 1]), ops, state)
            continue
        state = function.fold_ops(given, np.array([0, 1]), ops, state)
        if "expect" in step:
            _same(function, state.values, {**case, "expect": step["expect"]})


def _same(function: AggregateFunction, found: pa.Array, case: Case) -> None:
    expected = pa.array([arrow_value(case["expect"], function.arrow_type)], function.arrow_type)
    ours, wanted = found.to_pylist()[0], expected.to_pylist()[0]
    assert found.type == expected.type
    if case.get("unordered") and isinstance(wanted, list):
        assert sorted(map(repr, ours)) == sorted(map(repr, wanted))
    else:
        assert repr(ours) == repr(wanted)


@pytest.mark.parametrize("case", cases("changelog_wrappers"))
def test_changelog_wrappers(case: Case) -> None:
    require_known("changelog_wrappers", case)
    asked = case["options"]
    names = asked.get("value_fields") or [f"f{i}" for i in range(len(case["inputs"][0]["value"]))]
    fields = (
        DataField(0, "k", parse("INT NOT NULL")),
        *(DataField(i, n, parse("INT")) for i, n in enumerate(names, 1)),
    )
    schema = TableSchema(0, fields, len(fields) - 1, primary_keys=("k",))
    producer = "full-compaction" if case["wrapper"] == "full_compaction" else "lookup"
    options = {"merge-engine": case["merge_engine"], "changelog-producer": producer}
    options["changelog-producer.row-deduplicate"] = str(asked.get("row_deduplicate", False)).lower()
    options["changelog-producer.row-deduplicate-ignore-fields"] = ",".join(
        asked.get("row_deduplicate_ignore_fields", [])
    )
    if "aggregate" in asked:
        options["fields.default-aggregate-function"] = asked["aggregate"]
    if "sequence_field" in asked:
        options["sequence.field"] = asked["sequence_field"]
    rules = ChangelogRules.of(schema, TableOptions(options))
    assert rules is not None
    function, looked_up, records = merge_function(schema, options), case["lookup"], []
    if case["wrapper"] == "first_row":
        looked_up = {**case["inputs"][0], "level": 5} if looked_up else None

    def look_up(keys: NormalisedKeys, columns: pa.RecordBatch) -> tuple[Any, pa.RecordBatch]:
        assert (len(keys), columns.schema.names) == (1, ["k"])
        found = [] if looked_up is None else [looked_up]
        return np.arange(len(found)), _rows(found, names)

    merger = ChangelogMerger(rules, function, asked.get("max_level", 5), look_up, records.append)
    merger.drop_delete = case["wrapper"] == "full_compaction"
    batch = _rows(case["inputs"], names)
    merged = merger.merge(_pieces(batch, [row["level"] for row in case["inputs"]], function))
    merger.counters.check()
    _as_expected(_one(records, batch), case["expect"]["changelog"], names)
    if "result" in case["expect"]:
        _as_expected(_one(merged, batch), [case["expect"]["result"]] if case["expect"]["result"] else [], names)


def _one(batches: list[pa.RecordBatch], like: pa.RecordBatch) -> pa.RecordBatch:
    return pa.concat_batches([like.slice(0, 0), *batches])


def _rows(rows: list[Case], names: list[str]) -> pa.RecordBatch:
    columns: dict[str, pa.Array] = {"_KEY_k": pa.array([row["key"] for row in rows], pa.int32())}
    columns["_SEQUENCE_NUMBER"] = pa.array([row["seq"] for row in rows], pa.int64())
    columns["_VALUE_KIND"] = kinds_from_text(pa.array([row["kind"] for row in rows], pa.string()))
    for place, name in enumerate(names):
        columns[name] = pa.array([row["value"][place] for row in rows], pa.int32())
    return pa.RecordBatch.from_pydict(columns)


def _as_expected(found: pa.RecordBatch, expected: list[Case], names: list[str]) -> None:
    """Only what the case asserts is compared."""
    assert found.num_rows == len(expected)
    kinds = kinds_to_text(found.column("_VALUE_KIND")).to_pylist()
    for at, wanted in enumerate(expected):
        row = found.slice(at, 1).to_pylist()[0]
        ours = {
            "kind": kinds[at],
            "key": row["_KEY_k"],
            "seq": row["_SEQUENCE_NUMBER"],
            "value": [row[n] for n in names],
        }
        assert {what: ours[what] for what in wanted} == wanted


def test_lookup_merging_needs_the_lowest_level_above_zero_only() -> None:
    """Levels 1 and 2 hold the key: level 2 must not be merged again."""
    rows = [{"key": 1, "seq": n, "kind": "+I", "value": [n], "level": 3 - n} for n in (1, 2, 3)]
    fields = (DataField(0, "k", parse("INT NOT NULL")), DataField(1, "f0", parse("INT")))
    options = {"merge-engine": "aggregation", "fields.f0.aggregate-function": "sum", "changelog-producer": "lookup"}
    schema = TableSchema(0, fields, 1, primary_keys=("k",))
    rules, function = ChangelogRules.of(schema, TableOptions(options)), merge_function(schema, options)
    assert rules is not None
    records: list[pa.RecordBatch] = []
    merger = ChangelogMerger(rules, function, 5, None, records.append)
    (merged,) = merger.merge(_pieces(_rows(rows, ["f0"]), [row["level"] for row in rows], function))
    assert merged.column("f0").to_pylist() == [5]
    assert [batch.column("f0").to_pylist() for batch in records] == [[2, 5]]
