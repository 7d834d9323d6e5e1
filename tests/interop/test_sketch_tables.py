"""Tables of bitmaps and sketches, written by Dredge and Java in turn: both merge them to the same, before and after compactions."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from pyroaring import BitMap

from lsm_core import Catalog, Table
from lsm_core.merge.functions import roaring64
from tests.vectors.sketches import sketch_of

pytestmark = pytest.mark.paimon_java

FUNCTIONS = {"a": "rbm32", "b": "rbm64", "c": "hll_sketch", "d": "theta_sketch"}


def _create(java: Any) -> None:
    options = {"bucket": "1", "merge-engine": "aggregation"}
    options |= {f"fields.{name}.aggregate-function": function for name, function in FUNCTIONS.items()}
    fields = [{"name": "k", "type": "INT NOT NULL"}, *({"name": name, "type": "BYTES"} for name in FUNCTIONS)]
    java("create", schema={"fields": fields, "primaryKeys": ["k"], "options": options})


def _row(chance: Random, key: int) -> dict[str, Any]:
    row: dict[str, Any] = {"k": key}
    for name, function in FUNCTIONS.items():
        high = chance.choice([0, 1 << 20, 1 << 33 if function != "rbm32" else 7])
        values = sorted(chance.sample(range(60), chance.choice([1, 3, 12, 40])))
        row[name] = None if chance.random() < 0.2 else sketch_of(function, [value + high for value in values])
    return row


def _ours(table: Table) -> dict[int, dict[str, bytes | None]]:
    return {row.pop("k"): row for row in table.to_arrow().to_pylist()}


def _theirs(java: Any) -> dict[int, dict[str, bytes | None]]:
    rows = {row["k"]: row for row in java("read")["rows"]}
    return {k: {n: None if row[n] is None else bytes.fromhex(row[n]) for n in FUNCTIONS} for k, row in rows.items()}


def _same(table: Table, java: Any) -> None:
    ours, theirs = _ours(table), _theirs(java)
    assert ours.keys() == theirs.keys()
    for key, row in ours.items():
        for name, function in FUNCTIONS.items():
            mine, other = row[name], theirs[key][name]
            if mine is None or other is None or "sketch" in function:
                assert mine == other, (key, function)
            elif function == "rbm32":
                assert BitMap.deserialize(mine) == BitMap.deserialize(other)
            else:
                assert roaring64.decode(mine) == roaring64.decode(other)


def test_both_engines_merge_bitmaps_and_sketches_to_the_same(tmp_path: Path, java: Any) -> None:
    _create(java)
    table = Catalog(tmp_path).table("db.t")
    schema = table.schema.arrow_schema
    chance = Random(11)
    for step in range(8):
        rows = [_row(chance, key) for key in sorted(chance.sample(range(20), 12))]
        if step % 2:
            texts = [{n: v.hex() if isinstance(v, bytes) else v for n, v in row.items()} for row in rows]
            java("write", rows=texts, compact="none" if step != 5 else "full")
        else:
            table.write(pa.Table.from_pylist(rows, schema=schema))
        if step == 3:
            table.compact(full=True)
        _same(table, java)
    assert table.compact(full=True).keys_one_by_one > 0
    _same(table, java)
