"""Known differences of Paimon 1.4.2 (semantics.md): each rule excludes cases from the comparison, by name."""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from lsm_core.errors import ArithmeticOverflow, DredgeError, InvalidData, RetractNotSupported
from lsm_core.maintenance.reference import Row
from tests.merge.random_tables import RandomTable

LATER_OPTIONS = ("nested-sequence-field", "nested-key-null-strategy")


def later_version(table: RandomTable) -> dict[str, str]:
    """Return the columns that need a later version than 1.4.2, with the rule that excludes them (3.4, [2.0])."""
    found = {}
    for name in table.names:
        function = table.options.get(f"fields.{name}.aggregate-function", "")
        if any(f"fields.{name}.{option}" in table.options for option in LATER_OPTIONS):
            found[name] = "option of 2.0 of nested tables"
        elif table.types[name] == "BOOLEAN" and _function(table, name) in {"max", "min"}:
            found[name] = "max and min of BOOLEAN, compared by later versions"
        elif function == "collect":
            found |= _of_collect(table, name)
    return found


def _of_collect(table: RandomTable, name: str) -> dict[str, str]:
    """Return the rules for two defects of `collect` in 1.4.2: late elements come first, and retracts of rows fail."""
    ignores = f"fields.{name}.ignore-retract" in table.options
    if ignores and table.options["merge-engine"] == "partial-update":
        return {name: "collect with ignore-retract puts late elements first"}
    if not ignores and len(table.kinds) > 2 and "ROW" in table.types[name]:
        return {name: "collect of rows fails on retracts (ColumnarRowData has no equals)"}
    return {}


def _function(table: RandomTable, name: str) -> str:
    own = table.options.get(f"fields.{name}.aggregate-function")
    return own or table.options.get("fields.default-aggregate-function", "")


def rule_of(table: RandomTable, writes: Sequence[Sequence[Row]], answer: Any) -> str | None:
    """Return the rule that excludes the history of one key, or None if it is compared.

    Args:
        table: the table.
        writes: rows of the key by write.
        answer: result of the reference, or the class of its error.
    """
    if isinstance(answer, type) and issubclass(answer, DredgeError):
        return {
            ArithmeticOverflow: "integer overflow raises (4: 1.4.2 wraps)",
            InvalidData: "no quotient: Java fails as well, with all its write",
            RetractNotSupported: "retract refused: Java fails as well, with all its write",
        }[answer]
    if table.descending and any(len({row.sequence_fields for row in rows}) > 1 for rows in writes):
        return "descending inside one flush (3.5: sorted ascending)"
    rows = [row for item in writes for row in item]
    if any(len(item) > 1 for item in writes) or table.options["merge-engine"] == "partial-update":
        for name in table.names:
            if {f"fields.{name}.count-limit", f"fields.{name}.nested-key"} <= table.options.keys():
                return "count-limit with a key, of arrays that were merged before (3.4: in hash order, undefined)"
    for i, name in enumerate(table.names):
        values = [row.values[i] for row in rows if row.values[i] is not None]
        if found := _of_column(table, name, _function(table, name), values):
            return found
    return None


def _ordering(table: RandomTable) -> set[str]:
    """Return the columns that order versions: `sequence.field` and the ordering fields of sequence groups."""
    groups = [key.split(".")[1] for key in table.options if key.endswith(".sequence-group")]
    return {name for names in (table.options.get("sequence.field", ""), *groups) for name in names.split(",")}


def _is_odd(value: float) -> bool:
    return math.isnan(value) or (value == 0 and math.copysign(1, value) < 0)


def _of_column(table: RandomTable, name: str, function: str, values: list[Any]) -> str | None:
    if function == "sum" and table.types[name] == "DECIMAL(5, 2)" and sum(map(abs, values)) >= Decimal(1000):
        return "decimal sum of <= 18 digits over its precision (3.4: not checked)"
    if table.types[name] == "DOUBLE" and name in _ordering(table) and any(_is_odd(value) for value in values):
        return "NaN or -0.0 in an ordering field (1.4.2 has them equal to everything, and to 0.0, in some of its comparators)"
    return None
