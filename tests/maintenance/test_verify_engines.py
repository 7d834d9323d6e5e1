"""The judge (V2) on tables whose answers are rows that nobody wrote: honest compactions pass, each changed column is noticed."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lsm_core.compact import run_bucket_task
from lsm_core.errors import VerificationFailed
from lsm_core.maintenance.verify import ReferenceJudge
from lsm_core.table import Schema, Table
from tests.maintenance.tables import catalog
from tests.maintenance.test_verify import _compacted, _rewritten, _set, _task
from tests.support.samples import one_in

FIELDS = {
    "k": pa.int64(),
    "g": pa.int32(),
    "n": pa.int64(),
    "x": pa.float64(),
    "d": pa.decimal128(12, 2),
    "t": pa.string(),
    "l": pa.list_(pa.int32()),
    "m": pa.map_(pa.string(), pa.int32()),
    "r": pa.list_(pa.struct([("a", pa.int32()), ("b", pa.string())])),
}
SCHEMA = pa.schema([pa.field(name, kind, nullable=name != "k") for name, kind in FIELDS.items()])
FUNCTIONS = {
    "fields.n.aggregate-function": "sum",
    "fields.x.aggregate-function": "sum",
    "fields.d.aggregate-function": "sum",
    "fields.t.aggregate-function": "listagg",
    "fields.l.aggregate-function": "collect",
    "fields.m.aggregate-function": "merge_map",
    "fields.r.aggregate-function": "nested_update",
    "fields.r.nested-key": "a",
}
ENGINES: dict[str, dict[str, str]] = {
    "first-row": {"merge-engine": "first-row"},
    "plain": {"merge-engine": "partial-update"},
    "group": {"merge-engine": "partial-update", "fields.g.sequence-group": "n,x,d,t,l,m,r", **FUNCTIONS},
    "aggregation": {"merge-engine": "aggregation", "fields.g.aggregate-function": "max", **FUNCTIONS},
}
OTHER: dict[str, Any] = {
    "g": 99,
    "n": 99,
    "x": 99.5,
    "d": Decimal("99.25"),
    "t": "other",
    "l": [9, 9, 9],
    "m": [("other", 1)],
    "r": [{"a": 9, "b": "other"}],
}


def _row(key: int, turn: int) -> dict[str, Any]:
    values = {
        "g": (key + 2 * turn) % 5,
        "n": key * 10 + turn,
        "x": 0.1 * (turn + 1),
        "d": Decimal(key) / 4,
        "t": f"t{turn}",
        "l": [turn, key],
        "m": [("same", turn), (f"only{turn}", key)],
        "r": [{"a": turn % 2, "b": f"b{turn}"}, {"a": 5, "b": None}],
    }
    left_out = list(values)[(key + turn) % len(values)]
    return {"k": key, **values, left_out: None}


def _table(tmp_path: Path, options: dict[str, str]) -> Table:
    made = catalog(tmp_path).create_table("db.t", Schema(SCHEMA, ["k"], [], {"bucket": "1", **options}))
    for turn in range(4):
        made.write(pa.Table.from_pylist([_row(key, turn) for key in range(turn, 40 + turn)], schema=SCHEMA))
    return made


@pytest.mark.parametrize("engine", one_in(2, ENGINES))
def test_an_honest_compaction_passes_and_every_changed_column_is_noticed(tmp_path: Path, engine: str) -> None:
    table = _table(tmp_path, ENGINES[engine])
    task, inputs, outputs = _compacted(table)
    judge = ReferenceJudge()
    assert judge.check(table.store, task.partition, task.bucket, inputs, outputs, task.drop_delete) == 43
    there = table.to_arrow(filter=("k", "=", 10)).to_pylist()[0] if engine != "first-row" else _row(10, 0)
    for column, value in OTHER.items():
        for changed in [value] if there[column] is None else [value, None]:
            tampered = _rewritten(table, task, outputs, _set(column, 10, changed))
            with pytest.raises(VerificationFailed, match="key 10 has another"):
                judge.check(table.store, task.partition, task.bucket, inputs, tampered, task.drop_delete)


@pytest.mark.parametrize("engine", ["group", "aggregation"])
def test_the_last_bits_of_a_sum_are_forgiven_and_no_more(tmp_path: Path, engine: str) -> None:
    table = _table(tmp_path, ENGINES[engine])
    task, inputs, outputs = _compacted(table)
    total = table.to_arrow(filter=("k", "=", 10)).column("x")[0].as_py()
    judge = ReferenceJudge()
    near = _rewritten(table, task, outputs, _set("x", 10, total + 2.0**-52))
    assert judge.check(table.store, task.partition, task.bucket, inputs, near, task.drop_delete) == 43
    far = _rewritten(table, task, outputs, _set("x", 10, total + 2.0**-45))
    with pytest.raises(VerificationFailed, match="key 10"):
        judge.check(table.store, task.partition, task.bucket, inputs, far, task.drop_delete)


@pytest.mark.parametrize("engine", one_in(2, ENGINES, 1))
def test_a_compaction_may_be_watched_as_it_runs(tmp_path: Path, engine: str) -> None:
    table = _table(tmp_path, ENGINES[engine])
    report = run_bucket_task(table.store, _task(table), ReferenceJudge()).report
    assert report.keys_checked == 43
