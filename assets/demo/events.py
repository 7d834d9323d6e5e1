"""Events in the order of their arrival, which the replay writes commit by commit, and the scenario's random choices."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

_MASK = np.uint64(0xFFFFFFFF)


@dataclass(frozen=True)
class Part:
    """Changes that one rule of the demo's scenario makes.

    Attributes:
        rows: row number in the source file, for each changed row.
        commit: number of the commit that contains each row.
        step: order of rows with the same commit and row number.
        kind: row kind of all rows.
        columns: columns of the rows.
    """

    rows: npt.NDArray[np.int64]
    commit: npt.NDArray[np.int64]
    step: npt.NDArray[np.int64]
    kind: str
    columns: Mapping[str, pa.Array]


def make_part(
    table: Mapping[str, pa.Array],
    selected: npt.NDArray[np.bool_],
    commit: npt.NDArray[np.int64],
    step: npt.NDArray[np.int64] | int,
    kind: str = "+I",
    replaced: Mapping[str, pa.Array] | None = None,
) -> Part:
    """Return the selected rows of a table as a part.

    Args:
        table: columns of all rows.
        selected: which rows to take.
        commit: number of the commit that contains each row.
        step: order of rows with the same commit and row number; one number for each row, or one for all.
        kind: row kind.
        replaced: columns that replace those of `table`, for all rows.
    """
    rows = np.flatnonzero(selected)
    picked = {name: (replaced or {}).get(name, column).take(pa.array(rows)) for name, column in table.items()}
    steps = np.full(len(rows), step, np.int64) if isinstance(step, int) else step[rows]
    return Part(rows, commit[rows], steps, kind, picked)


def arrange(parts: list[Part], schema: pa.Schema) -> pa.Table:
    """Combine parts into one table sorted by commit, row number and step.

    Args:
        parts: changes. Each change has a commit, a row number and a step; the step orders several changes of one
            row in one commit. All changes of a part have the same row kind.
        schema: schema of the table.

    Returns:
        Columns `_commit` int32, `_ord` int32, `_kind` string, then those of `schema`. `_ord` is the position of the
        change in its commit after the sort, from 0.
    """
    commit = np.concatenate([p.commit for p in parts])
    rows = np.concatenate([p.rows for p in parts])
    step = np.concatenate([p.step for p in parts])
    order = np.lexsort((step, rows, commit))
    commit = commit[order]
    starts = np.searchsorted(commit, commit, side="left")
    ordinal = np.arange(len(commit)) - starts
    kind = pa.concat_arrays([pa.array([p.kind] * len(p.rows)) for p in parts])
    indices = pa.array(order)
    columns = [
        pa.concat_arrays([p.columns[field.name].cast(field.type) for p in parts]).take(indices) for field in schema
    ]
    stamped = pa.schema([("_commit", pa.int32()), ("_ord", pa.int32()), ("_kind", pa.string()), *schema])
    return pa.table(
        [pa.array(commit, pa.int32()), pa.array(ordinal, pa.int32()), kind.take(indices), *columns], schema=stamped
    )


def commit_of(events: pa.Table, number: int) -> tuple[pa.Table, pa.Array]:
    """Return the rows of commit `number` in order, and the kind of each row (`+I`, `-D` ..)."""
    rows = events.filter(pc.equal(events["_commit"], number))
    return rows.drop_columns(["_commit", "_ord", "_kind"]), rows["_kind"].combine_chunks()


def hash_numbers(numbers: npt.NDArray[np.int64], salt: int) -> npt.NDArray[np.int64]:
    """Return a 32-bit hash h(n, salt) of each row number n, as int64 values in [0, 2^32).

    The rules of the demo use the hash as a random number; ``salt`` makes the rules independent.
    """
    x = (numbers.astype(np.uint64) * np.uint64(2654435761) + np.uint64(salt * 2246822519)) & _MASK
    x ^= x >> np.uint64(16)
    x = (x * np.uint64(2146121005)) & _MASK
    x ^= x >> np.uint64(15)
    x = (x * np.uint64(2221713035)) & _MASK
    x ^= x >> np.uint64(16)
    return x.astype(np.int64)


def select_percent(numbers: npt.NDArray[np.int64], salt: int, below: int, of: int = 100) -> npt.NDArray[np.bool_]:
    """Return a mask of the pseudo-random share of rows that a rule of the scenario selects.

    Args:
        numbers: row numbers.
        salt: salt of the rule.
        below: rows whose h(n, salt) modulo `of` is less than this are selected.
        of: the modulus.
    """
    return hash_numbers(numbers, salt) % of < below
