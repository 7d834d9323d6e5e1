"""The judge passes the cases derived from Paimon's own tests, as the kernels must."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from lsm_core.errors import DredgeError
from lsm_core.format.schema import DataField, TableSchema
from lsm_core.maintenance.reference import Row
from lsm_core.maintenance.reference.aggregation import AggregationMerge
from lsm_core.maintenance.reference.comparison import ResultComparison
from lsm_core.maintenance.reference.functions import function_of
from lsm_core.maintenance.reference.partial_update import PartialUpdateMerge
from lsm_core.maintenance.reference.values import plain_values
from lsm_core.types import DataType, parse, to_arrow
from tests.vectors.cases import Case, cases
from tests.vectors.sketches import with_bytes
from tests.vectors.values import arrow_value

KINDS = ("+I", "-U", "+U", "-D")


def plain(raw: Any, kind: DataType) -> Any:
    arrow = to_arrow(kind)
    return plain_values(pa.array([arrow_value(raw, arrow)], arrow))[0]


def schema_of(columns: list[list[str]], keys: list[str]) -> TableSchema:
    fields = tuple(DataField(i, name, parse(kind)) for i, (name, kind) in enumerate(columns))
    return TableSchema(0, fields, len(fields) - 1, primary_keys=tuple(keys))


def row_of(schema: TableSchema, sequence: int, kind: str, values: list[Any]) -> Row:
    plains = tuple(plain(raw, field.type) for raw, field in zip(values, schema.fields, strict=True))
    return Row((1,), (), sequence, KINDS.index(kind), plains)


@pytest.mark.parametrize("case", [c for c in cases("partial_update") if "steps" in c.values[0]])
def test_partial_update(case: Case) -> None:
    names = case.get("expect_effective_read_columns") or [name for name, _ in case["columns"]]
    schema = schema_of(
        [column for name in names for column in case["columns"] if column[0] == name], case["primary_key"]
    )
    options = {**case["options"], "merge-engine": "partial-update"}
    fresh = PartialUpdateMerge(_whole(case) if names != schema.field_names else schema, options, ignore_delete=False)
    merge = fresh if len(names) == len(case["columns"]) else _partial(schema, options)
    for step in case["steps"]:
        if "add" in step:
            merge.add(row_of(schema, step["add"]["seq"], step["add"]["kind"], step["add"]["row"]))
        elif "expect" in step:
            _, kind, values = merge.result()
            assert (KINDS[kind], values) == (
                step["expect"]["kind_derived"],
                list(row_of(schema, 0, "+I", step["expect"]["row"]).values),
            )
        else:
            merge = PartialUpdateMerge(schema, options, ignore_delete=False)


def _whole(case: Case) -> TableSchema:
    return schema_of(case["columns"], case["primary_key"])


def _partial(schema: TableSchema, options: dict[str, str]) -> PartialUpdateMerge:
    """Only columns that are read, so groups lose those that are not."""
    there = set(schema.field_names)
    kept = {
        key: ",".join(name for name in value.split(",") if name in there) if key.endswith("sequence-group") else value
        for key, value in options.items()
        if not key.endswith("sequence-group") or set(key.split(".")[1].split(",")) <= there
    }
    return PartialUpdateMerge(schema, kept, ignore_delete=False)


@pytest.mark.parametrize("case", [c for c in cases("aggregators") if c.values[0].get("op") == "merge_rows"])
def test_aggregation(case: Case) -> None:
    schema = schema_of(case["columns"], case["primary_key"])
    merge = AggregationMerge(schema, case["options"])
    for number, row in enumerate(case["rows"]):
        merge.add(row_of(schema, number, row["kind"], row["row"]))
    assert merge.result()[2] == list(row_of(schema, 0, "+I", case["expect"]).values)


@pytest.mark.parametrize(
    "case", [c for c in cases("aggregators") if c.values[0].get("op") not in {"merge_rows", "create"}]
)
def test_functions(case: Case) -> None:
    case = with_bytes(case, case["function"])
    kind = parse(case["type"])
    function = function_of(case["function"], "f", kind, case.get("options", {}))
    steps = case.get("steps") or [case]
    if case.get("op") == "fold":
        steps = [{"op": "agg", "input": raw} for raw in case["inputs"]]
        steps[-1]["expect"] = case["expect"]
    acc: Any = None
    for step in steps:
        if step["op"] == "reset":
            function, acc = function_of(case["function"], "f", kind, case.get("options", {})), None
            continue
        if "accumulator" in step:
            acc = _placeholder(step, "accumulator", kind)
        call = function.agg if step["op"] == "agg" else function.retract
        if isinstance(step.get("expect"), dict) and "error" in step["expect"]:
            with pytest.raises(DredgeError):
                call(acc, _placeholder(step, "input", kind))
            continue
        acc = call(acc, plain(step["input"], kind))
        if "expect" in step:
            _check(case, kind, acc, plain(step["expect"], kind))


def _placeholder(step: Case, name: str, kind: DataType) -> Any:
    """The values of refused retracts are of no type."""
    refused = isinstance(step.get("expect"), dict) and "retraction" in step["expect"].get("error", "")
    return step[name] if refused else plain(step[name], kind)


def _check(case: Case, kind: DataType, found: Any, wanted: Any) -> None:
    options = {"fields.f.aggregate-function": case["function"], **case.get("options", {})}
    if case.get("unordered") and isinstance(wanted, list):
        found, wanted = (sorted(value, key=repr) for value in (found, wanted))
    schema = TableSchema(0, (DataField(0, "f", kind),), 0, primary_keys=())
    answers = ResultComparison(schema, options)
    assert answers.same(Row((), (), 0, 0, (wanted,)), Row((), (), 0, 0, (found,)))
