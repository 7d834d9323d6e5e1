"""Rows of a vector as key-value batches."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from lsm_core.types import kinds_from_text, kinds_to_text
from tests.vectors.cases import Case


def kv_batch(rows: Sequence[Case], key_width: int = 1) -> pa.RecordBatch:
    """Return a batch with columns `_KEY_k<i>`, `_SEQUENCE_NUMBER`, `_VALUE_KIND` and `value`.

    The key of a row is a number or a list of numbers.
    """
    keys = [row["key"] if isinstance(row["key"], list) else [row["key"]] for row in rows]
    width = len(keys[0]) if keys else key_width
    columns = {f"_KEY_k{i}": pa.array([key[i] for key in keys], pa.int64()) for i in range(width)}
    columns["_SEQUENCE_NUMBER"] = pa.array([row["seq"] for row in rows], pa.int64())
    columns["_VALUE_KIND"] = kinds_from_text(pa.array([row["kind"] for row in rows], pa.string()))
    columns["value"] = pa.array([row.get("value") for row in rows], pa.int64())
    return pa.RecordBatch.from_pydict(columns)


def as_cases(batch: pa.RecordBatch | pa.Table) -> list[Case]:
    """Convert a batch with one key column back to the rows of a vector."""
    kinds = kinds_to_text(batch.column("_VALUE_KIND")).to_pylist()
    rows = batch.to_pylist()
    return [
        {"key": row["_KEY_k0"], "seq": row["_SEQUENCE_NUMBER"], "kind": kind, "value": row["value"]}
        for row, kind in zip(rows, kinds, strict=True)
    ]
