"""The six tables on which the real Paimon's minor compaction changes an answer: closed units do not, `as-paimon` says so."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lsm_core import Catalog, Schema, Table
from lsm_core.types import parse, to_arrow
from tests.support.samples import one_in

Row = dict[str, Any]
PARTIAL, AGGREGATION = {"merge-engine": "partial-update"}, {"merge-engine": "aggregation"}
GROUP = {**PARTIAL, "fields.g.sequence-group": "x", "fields.x.aggregate-function": "sum"}
LAST = "last_non_null_value"

# name: options, value columns, the old row, and the two newer ones
TABLES: dict[str, tuple[dict[str, str], dict[str, str], Row, list[Row]]] = {
    "partial-update with sequence.field": (
        {**PARTIAL, "sequence.field": "s"},
        {"s": "INT", "a": "INT", "b": "INT"},
        {"s": 2, "a": 20, "b": 1},
        [{"s": 1, "a": 10}, {"s": 3, "b": 7}],
    ),
    "partial-update that removes on delete": (
        {**PARTIAL, "partial-update.remove-record-on-delete": "true"},
        {"a": "INT", "b": "INT"},
        {"a": 1, "b": 2},
        [{"_kind": "-D"}, {"b": 5}],
    ),
    "a sum in a group, with a retract": (
        GROUP,
        {"g": "INT", "x": "INT"},
        {"g": 1, "x": 10},
        [{"_kind": "-D", "g": 2, "x": 4}, {"g": 3, "x": 1}],
    ),
    "aggregation with sequence.field": (
        {**AGGREGATION, "sequence.field": "s", "fields.a.aggregate-function": LAST},
        {"s": "INT", "a": "INT"},
        {"s": 2, "a": 20},
        [{"s": 1, "a": 10}, {"s": 3}],
    ),
    "aggregation with a retract": (
        {**AGGREGATION, "fields.a.aggregate-function": LAST},
        {"a": "INT"},
        {"a": 1},
        [{"_kind": "-U", "a": 1}, {"_kind": "+U"}],
    ),
    "a sum of doubles": (
        {**AGGREGATION, "fields.a.aggregate-function": "sum"},
        {"a": "DOUBLE"},
        {"a": 0.1},
        [{"a": 0.2}, {"a": 0.3}],
    ),
}


def table_with_two_newer_runs(place: Path, name: str, mode: str) -> Table:
    """A large run at the top level, then two small commits for key 1."""
    options, columns, old, new = TABLES[name]
    catalog = Catalog(place)
    catalog.create_database("d")
    fields = pa.schema(
        [pa.field("k", pa.int32(), nullable=False), *((n, to_arrow(parse(kind))) for n, kind in columns.items())]
    )
    settings = {
        "bucket": "1",
        "num-sorted-run.compaction-trigger": "3",
        "compaction.size-ratio": "50",
        "dredge.compaction.order-sensitive": mode,
        **options,
    }
    table = catalog.create_table("d.t", Schema(fields, ["k"], options=settings))
    base = [{"k": key, **old} for key in [1, *random.Random(5).sample(range(100, 2**30), 8_000)]]
    table.write(pa.Table.from_pylist(base, schema=fields))
    table.compact(full=True)
    for row in new:
        values = pa.Table.from_pylist([{"k": 1, **row}], schema=fields)
        table.write(values, row_kinds=pa.array([row.get("_kind", "+I")]))
    return table


@pytest.mark.parametrize("name", one_in(3, TABLES))
def test_closed_units_change_no_answer(tmp_path: Path, name: str) -> None:
    table = table_with_two_newer_runs(tmp_path, name, "closed")
    before = table.to_arrow()
    report = table.compact()
    assert report.commits == 1
    assert table.to_arrow() == before
    assert report.changed_keys == 0
    assert not report.warnings


@pytest.mark.parametrize("name", one_in(3, TABLES))
def test_units_as_paimon_picks_them_change_an_answer_and_say_so(tmp_path: Path, name: str) -> None:
    table = table_with_two_newer_runs(tmp_path, name, "as-paimon")
    before = table.to_arrow()
    report = table.compact()
    assert report.files_in == 2
    assert table.to_arrow() != before
    assert report.changed_keys == 1
    assert "k=1" in report.warnings[0]
    assert "'closed' prevents that" in report.warnings[0]
