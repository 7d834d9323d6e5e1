"""Aggregate functions of semantics.md 3.4, one value at a time. One object is one column of one key: it may remember."""

from __future__ import annotations

from collections.abc import Mapping

from lsm_core.errors import InvalidOption
from lsm_core.maintenance.reference.functions import binary, collection, nested, numeric, scalar
from lsm_core.maintenance.reference.functions.base import Field, Function, IgnoringRetracts
from lsm_core.types import DataType

_MADE: dict[str, type[Function]] = {
    **scalar.FUNCTIONS,
    **numeric.FUNCTIONS,
    **collection.FUNCTIONS,
    **nested.FUNCTIONS,
    **binary.FUNCTIONS,
}


def function_of(name: str, column: str, kind: DataType, options: Mapping[str, str]) -> Function:
    """A fresh function of a column. Raises InvalidOption for an unknown name."""
    made = _MADE.get("sum" if name == "count" else name)
    if made is None:
        raise InvalidOption(f"fields.{column}.aggregate-function", name, ", ".join(sorted(_MADE)))
    field = Field(column, kind, options)
    function = made(field)
    return IgnoringRetracts(function) if field.flag("ignore-retract") else function


__all__ = ["Function", "function_of"]
