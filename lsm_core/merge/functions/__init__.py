"""Aggregate functions of single fields: what values of one column become when the versions of a key are merged.

`base` is what they share: a fold over many groups at once. `boundary` picks an input, `numeric` computes; the others build
texts, collections, maps, nested tables, bitmaps and sketches.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from lsm_core.errors import InvalidOption
from lsm_core.merge.functions import bitmaps, boundary, collection, nested, numeric, sketches
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
from lsm_core.merge.functions.boundary import KEEP, NULL, PickAggregate, takes_newest
from lsm_core.types import DataType, parse

ENTRY_POINTS: Final = "dredge.aggregate_functions"
"""Entry-point group of custom functions: each gives a callable (DataType, FieldOptions) -> AggregateFunction."""

Factory = Callable[[DataType, FieldOptions], AggregateFunction]
_BUILT_IN: Final[dict[str, Any]] = {
    **boundary.FUNCTIONS,
    **numeric.FUNCTIONS,
    **collection.FUNCTIONS,
    **nested.FUNCTIONS,
    **bitmaps.FUNCTIONS,
    **sketches.FUNCTIONS,
}


def function_names() -> list[str]:
    """Names that option `fields.<field>.aggregate-function` may have, custom ones too, sorted."""
    from importlib.metadata import entry_points  # slow to import, and most tables name no function of others

    return sorted({*_BUILT_IN, *(point.name for point in entry_points(group=ENTRY_POINTS))})


def aggregate_function(
    name: str,
    type: DataType | str,  # noqa: A002 - the name is part of the API
    field: str = "f",
    options: Mapping[str, str] | None = None,
    table: str = "",
) -> AggregateFunction:
    """The aggregate function ``name`` for a field of ``type``, set up by the options `fields.<field>.*`.

    Raises InvalidOption for an unknown name, a type that the function does not take, or options that contradict each other.
    """
    kind = parse(type) if isinstance(type, str) else type
    own = FieldOptions(field, options or {}, table)
    make: Factory | None = _BUILT_IN.get(name)
    if make is None:
        from importlib.metadata import entry_points

        make = next((point.load() for point in entry_points(group=ENTRY_POINTS, name=name)), None)
    if make is None:
        raise InvalidOption(own.key("aggregate-function"), name, "one of " + ", ".join(function_names()), table)
    return make(kind, own)


__all__ = [
    "AGG",
    "ENTRY_POINTS",
    "KEEP",
    "LATE",
    "NULL",
    "RETRACT",
    "SKIP",
    "Accumulators",
    "AggregateFunction",
    "FieldOptions",
    "Folding",
    "GroupError",
    "PickAggregate",
    "aggregate_function",
    "function_names",
    "takes_newest",
]
