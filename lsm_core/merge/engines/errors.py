"""Typed errors for keys whose versions cannot be merged; they name the table, the column and the key."""

from __future__ import annotations

from typing import Any

from lsm_core.errors import ArithmeticOverflow, DredgeError, InvalidData, RetractNotSupported
from lsm_core.merge.engines.fold import FoldInput, GroupRows
from lsm_core.merge.functions import GroupError
from lsm_core.merge.functions.base import OVERFLOW, RETRACT_REFUSED
from lsm_core.merge.keys import KeySpec


def key_of(window: FoldInput, inputs: GroupRows, group: int, spec: KeySpec) -> dict[str, Any]:
    """Return the key of one group (the rows of one key), for errors.

    Args:
        window: rows that are merged together.
        inputs: some groups of the window (range of keys).
        group: index of the group in ``inputs``.
        spec: key columns of the table.

    Returns:
        Value of each key column, by name.
    """
    first = window.groups.order[window.groups.starts[inputs.groups[group : group + 1]]]
    stored = spec.key_fields(window.rows.pieces[0].batch.schema)
    return {name: window.take(held, first)[0].as_py() for name, held in zip(spec.key_columns, stored, strict=True)}


def named_error(
    error: GroupError, table: str, column: str, window: FoldInput, inputs: GroupRows, spec: KeySpec
) -> DredgeError:
    """Return the typed error for a key whose versions cannot be merged, with table, column and key.

    Args:
        error: error of the column's aggregate function.
        table: name of the table.
        column: name of the column.
        window: rows that are merged together.
        inputs: the groups of the window (range of keys) to which the error's group number refers.
        spec: key columns of the table.
    """
    key = key_of(window, inputs, error.group, spec)
    text = f"table {table}, column '{column}', key {key}: {error.reason}"
    if error.kind == OVERFLOW:
        return ArithmeticOverflow(text)
    if error.kind == RETRACT_REFUSED:
        return RetractNotSupported(text)
    return InvalidData(table, column, f"key {key}: {error.reason}")
