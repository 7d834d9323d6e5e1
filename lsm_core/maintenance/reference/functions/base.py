"""Base classes of the aggregate functions, and the column with its options."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lsm_core.errors import RetractNotSupported
from lsm_core.types import DataType


@dataclass(frozen=True)
class Field:
    """Column with its options.

    Attributes:
        name: name of the column.
        type: data type of the column.
        options: all options of the table.
    """

    name: str
    type: DataType
    options: Mapping[str, str]

    def text(self, option: str) -> str | None:
        """Return the value of the table option `fields.<column>.<option>`, None if it is not set."""
        return self.options.get(f"fields.{self.name}.{option}")

    def flag(self, option: str) -> bool:
        """Return whether the option `fields.<c>.<option>` is true."""
        return (self.text(option) or "false").strip().lower() == "true"

    def since(self, version: str) -> bool:
        """Return whether the table follows Paimon ``version`` or a newer one."""
        followed = self.options.get("dredge.paimon-version", "1.4")
        return [int(part) for part in followed.split(".")] >= [int(part) for part in version.split(".")]

    def names(self, option: str) -> list[str]:
        """Return the names in the comma-separated option `fields.<c>.<option>`."""
        return [name.strip() for name in (self.text(option) or "").split(",") if name.strip()]


class Function:
    """Aggregate function of one column, created for each key.

    In the methods, ``acc`` is the accumulated value and ``value`` is the input.
    """

    def __init__(self, field: Field) -> None:
        self.field = field

    def agg(self, acc: Any, value: Any) -> Any:
        """Return the accumulator after adding an input."""
        raise AssertionError(f"{type(self).__name__} does not define `agg` (inputs {acc!r}, {value!r})")

    def agg_reversed(self, acc: Any, value: Any) -> Any:
        """Return the accumulator after adding an input that is older than the inputs so far."""
        return self.agg(value, acc)

    def retract(self, acc: Any, value: Any) -> Any:
        """Return the accumulator after retracting an input."""
        raise RetractNotSupported(
            f"column {self.field.name}: {type(self).__name__} of {acc!r} cannot retract {value!r}; "
            f"set `fields.{self.field.name}.ignore-retract` to skip retracts"
        )


class NullsChangeNothing(Function):
    """Function that skips null inputs; subclasses define :meth:`combine`."""

    def agg(self, acc: Any, value: Any) -> Any:
        """Return the result of :meth:`combine`; if the accumulator or the input is null, return the one that is not."""
        if acc is None or value is None:
            return value if acc is None else acc
        return self.combine(acc, value)

    def combine(self, acc: Any, value: Any) -> Any:
        """Combine two values that are not null."""
        raise AssertionError(f"{type(self).__name__} does not define `combine` (inputs {acc!r}, {value!r})")


class IgnoringRetracts(Function):
    """Wrapper of the function of a column with `fields.<c>.ignore-retract`."""

    def __init__(self, inner: Function) -> None:
        super().__init__(inner.field)
        self._inner = inner

    def agg(self, acc: Any, value: Any) -> Any:
        """Return the wrapped function's accumulator after adding an input."""
        return self._inner.agg(acc, value)

    def agg_reversed(self, acc: Any, value: Any) -> Any:
        """Return the wrapped function's accumulator after adding an input that is older than the inputs so far."""
        return self._inner.agg_reversed(acc, value)

    def retract(self, acc: Any, value: Any) -> Any:
        """Return the accumulator unchanged."""
        del value
        return acc
