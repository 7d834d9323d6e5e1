"""Aggregate functions of single fields: each merges the values that the versions of a key have in one column.

`base` has the common fold over many groups at once. `first_last_min_max` picks an input, and `numeric` computes; the
other modules build texts, collections, maps, nested tables, bitmaps and sketches. A module is imported when a table
names one of its functions: most tables name none, and the libraries of bitmaps and sketches alone take a tenth of the
time of a short command.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Final

from lsm_core.errors import InvalidOption
from lsm_core.merge.functions.base import (
    AGG,
    LATE,
    RETRACT,
    SKIP,
    Accumulators,
    AggregateFunction,
    FieldOptions,
    Folding,
    GroupError,
)
from lsm_core.merge.functions.first_last_min_max import KEEP, NULL, PickAggregate, takes_newest
from lsm_core.types import DataType, parse

ENTRY_POINTS: Final = "dredge.aggregate_functions"
"""Entry-point group of custom functions; each entry is a callable (DataType, FieldOptions) -> AggregateFunction."""

Factory = Callable[[DataType, FieldOptions], AggregateFunction]
BUILT_IN: Final[Mapping[str, tuple[str, ...]]] = {
    "first_last_min_max": (
        "last_value",
        "last_non_null_value",
        "first_value",
        "first_non_null_value",
        "first_not_null_value",
        "primary-key",
        "max",
        "min",
        "bool_and",
        "bool_or",
    ),
    "numeric": ("sum", "product"),
    "collection": ("collect", "listagg"),
    "nested": ("merge_map", "merge_map_with_keytime", "nested_update", "nested_partial_update"),
    "bitmaps": ("rbm32", "rbm64"),
    "sketches": ("hll_sketch", "theta_sketch"),
}
"""Function names by module; the module's `FUNCTIONS` holds a :data:`Factory` for each name."""
_MODULE_OF: Final = {name: module for module, names in BUILT_IN.items() for name in names}


def function_names() -> list[str]:
    """Return the accepted names of option `fields.<field>.aggregate-function`, custom ones too, sorted."""
    from importlib.metadata import entry_points  # slow to import, and most tables name no custom function

    return sorted({*_MODULE_OF, *(point.name for point in entry_points(group=ENTRY_POINTS))})


def aggregate_function(
    name: str,
    type: DataType | str,  # noqa: A002 - the name is part of the API
    field: str = "f",
    options: Mapping[str, str] | None = None,
    table: str = "",
) -> AggregateFunction:
    """Return the aggregate function ``name`` of a field.

    Args:
        name: name of the function.
        type: type of the field.
        field: name of the field.
        options: options of the table; `fields.<field>.*` configure the function.
        table: name of the table, for errors.

    Raises:
        InvalidOption: the name is unknown, the type is not accepted, or options contradict each other.
    """
    kind = parse(type) if isinstance(type, str) else type
    own = FieldOptions(field, options or {}, table)
    make: Factory | None
    if name in _MODULE_OF:
        make = import_module(f"{__name__}.{_MODULE_OF[name]}").FUNCTIONS[name]
    else:
        from importlib.metadata import entry_points

        make = next((point.load() for point in entry_points(group=ENTRY_POINTS, name=name)), None)
    if make is None:
        raise InvalidOption(own.key("aggregate-function"), name, "one of " + ", ".join(function_names()), table)
    return make(kind, own)
