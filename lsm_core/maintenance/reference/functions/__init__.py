"""Aggregate functions of semantics.md 3.4, one value at a time.

A function object serves one column of one key and may keep state.
"""

from __future__ import annotations

from collections.abc import Mapping

from lsm_core.errors import InvalidOption
from lsm_core.maintenance.reference.functions import binary, collection, nested, numeric, scalar
from lsm_core.maintenance.reference.functions.base import Field, Function, IgnoringRetracts
from lsm_core.types import DataType

_FUNCTION_CLASSES: dict[str, type[Function]] = {
    **scalar.FUNCTIONS,
    **numeric.FUNCTIONS,
    **collection.FUNCTIONS,
    **nested.FUNCTIONS,
    **binary.FUNCTIONS,
}


def function_of(name: str, column: str, kind: DataType, options: Mapping[str, str]) -> Function:
    """Return a new aggregate function of a column.

    Args:
        name: name of the function.
        column: name of the column.
        kind: type of the column.
        options: table options as they are stored.

    Raises:
        InvalidOption: the name is unknown.
    """
    function_class = _FUNCTION_CLASSES.get("sum" if name == "count" else name)
    if function_class is None:
        raise InvalidOption(f"fields.{column}.aggregate-function", name, ", ".join(sorted(_FUNCTION_CLASSES)))
    field = Field(column, kind, options)
    function = function_class(field)
    return IgnoringRetracts(function) if field.flag("ignore-retract") else function
