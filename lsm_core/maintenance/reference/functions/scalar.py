"""Functions that choose one of their inputs, boolean functions, and `listagg`."""

from __future__ import annotations

from typing import Any, Final

from lsm_core.maintenance.reference.functions.base import Field, Function, NullsChangeNothing
from lsm_core.maintenance.reference.versions import compare_values


class PrimaryKey(Function):
    """Function of primary-key columns: the newest input replaces the accumulator, also for a retract."""

    def agg(self, acc: Any, value: Any) -> Any:
        """Return ``value``, the new input, even if it is null."""
        del acc
        return value

    def retract(self, acc: Any, value: Any) -> Any:
        """Return ``value``, the retracted input."""
        del acc
        return value


class LastValue(Function):
    """Last input, also if it is null."""

    def agg(self, acc: Any, value: Any) -> Any:
        """Return ``value``, the new input, even if it is null."""
        del acc
        return value

    def retract(self, acc: Any, value: Any) -> Any:
        """Return null."""
        del acc, value


class LastNonNullValue(Function):
    """Last input that is not null."""

    def agg(self, acc: Any, value: Any) -> Any:
        """Return ``value``, the new input; if it is null, return the accumulator ``acc``."""
        return acc if value is None else value

    def retract(self, acc: Any, value: Any) -> Any:
        """Return null if the retracted input ``value`` is not null, else the accumulator ``acc``."""
        return acc if value is None else None


class FirstValue(Function):
    """First input, also if it is null; the only state is whether there was an input."""

    def __init__(self, field: Field) -> None:
        super().__init__(field)
        self._started = False

    def agg(self, acc: Any, value: Any) -> Any:
        """Return the input at the first call, else the accumulator."""
        if self._started:
            return acc
        self._started = True
        return value


class FirstNonNullValue(Function):
    """First input that is not null; the only state is whether there was such an input."""

    def __init__(self, field: Field) -> None:
        super().__init__(field)
        self._started = False

    def agg(self, acc: Any, value: Any) -> Any:
        """Return the input if it is the first that is not null, else the accumulator."""
        if self._started or value is None:
            return acc
        self._started = True
        return value


class Max(NullsChangeNothing):
    """Larger value."""

    def combine(self, acc: Any, value: Any) -> Any:
        """Return the larger value."""
        return value if compare_values(acc, value) < 0 else acc


class Min(NullsChangeNothing):
    """Smaller value."""

    def combine(self, acc: Any, value: Any) -> Any:
        """Return the smaller value."""
        return acc if compare_values(acc, value) < 0 else value


class BoolAnd(NullsChangeNothing):
    """Conjunction of the inputs."""

    def combine(self, acc: Any, value: Any) -> Any:
        """Return acc and value."""
        return acc and value


class BoolOr(NullsChangeNothing):
    """Disjunction of the inputs."""

    def combine(self, acc: Any, value: Any) -> Any:
        """Return acc or value."""
        return acc or value


class ListAgg(NullsChangeNothing):
    """Concatenation of texts with a delimiter.

    Empty inputs are skipped (since Paimon 2.0 also blank ones), and an empty accumulator is replaced by the input.
    """

    def agg(self, acc: Any, value: Any) -> Any:
        """Return the accumulator with the input appended; since Paimon 2.0 a blank first input is skipped too."""
        if not self.field.since("2.0"):
            return super().agg(acc, value)
        if value is None or not self._adds_text(value):
            return acc
        return value if acc is None else self.combine(acc, value)

    def _adds_text(self, text: str) -> bool:
        """Return whether a text is appended: not empty and, since Paimon 2.0, not blank."""
        if not self.field.since("2.0"):
            return bool(text)
        # Java's Character.isWhitespace: all of Python's spaces except the non-breaking ones and U+0085.
        return any(not char.isspace() or char in "\x85\xa0\u2007\u202f" for char in text)

    def combine(self, acc: str, value: str) -> str:
        """Append the input; with `distinct` only those parts that the accumulator lacks."""
        option = self.field.text("list-agg-delimiter")
        delimiter = "," if option is None else option
        if not self._adds_text(value):
            return acc
        if not self._adds_text(acc):
            return value
        if not self.field.flag("distinct"):
            return acc + delimiter + value
        parts = set(acc.split(delimiter))
        for part in value.split(delimiter):
            if self._adds_text(part) and part not in parts:
                parts.add(part)
                acc += delimiter + part
        return acc


FUNCTIONS: Final[dict[str, type[Function]]] = {
    "primary-key": PrimaryKey,
    "last_value": LastValue,
    "last_non_null_value": LastNonNullValue,
    "first_value": FirstValue,
    "first_non_null_value": FirstNonNullValue,
    "first_not_null_value": FirstNonNullValue,
    "max": Max,
    "min": Min,
    "bool_and": BoolAnd,
    "bool_or": BoolOr,
    "listagg": ListAgg,
}
