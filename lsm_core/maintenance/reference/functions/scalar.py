"""Functions that choose one of their inputs, booleans, and listagg."""

from __future__ import annotations

from typing import Any, Final

from lsm_core.maintenance.reference.functions.base import Field, Function, NullsChangeNothing
from lsm_core.maintenance.reference.versions import compare_values


class PrimaryKey(Function):
    """The input, whatever happens."""

    def agg(self, acc: Any, value: Any) -> Any:
        """The input."""
        del acc
        return value

    def retract(self, acc: Any, value: Any) -> Any:
        """The input too."""
        del acc
        return value


class LastValue(Function):
    """The last input, null too."""

    def agg(self, acc: Any, value: Any) -> Any:
        """The input."""
        del acc
        return value

    def retract(self, acc: Any, value: Any) -> Any:
        """Null."""
        del acc, value


class LastNonNullValue(Function):
    """The last input that is not null."""

    def agg(self, acc: Any, value: Any) -> Any:
        """The input if there is one."""
        return acc if value is None else value

    def retract(self, acc: Any, value: Any) -> Any:
        """Null if something is taken back."""
        return acc if value is None else None


class FirstValue(Function):
    """The first input, null too. All it remembers is that it was asked before."""

    def __init__(self, field: Field) -> None:
        super().__init__(field)
        self._asked = False

    def agg(self, acc: Any, value: Any) -> Any:
        """The input when asked for the first time."""
        if self._asked:
            return acc
        self._asked = True
        return value


class FirstNonNullValue(Function):
    """The first input that is not null. All it remembers is that there was one."""

    def __init__(self, field: Field) -> None:
        super().__init__(field)
        self._found = False

    def agg(self, acc: Any, value: Any) -> Any:
        """The input when it is the first that is not null."""
        if self._found or value is None:
            return acc
        self._found = True
        return value


class Max(NullsChangeNothing):
    """The larger one."""

    def both(self, acc: Any, value: Any) -> Any:
        """The larger one."""
        return value if compare_values(acc, value) < 0 else acc


class Min(NullsChangeNothing):
    """The smaller one."""

    def both(self, acc: Any, value: Any) -> Any:
        """The smaller one."""
        return acc if compare_values(acc, value) < 0 else value


class BoolAnd(NullsChangeNothing):
    """Whether all are true."""

    def both(self, acc: Any, value: Any) -> Any:
        """Both."""
        return acc and value


class BoolOr(NullsChangeNothing):
    """Whether one is true."""

    def both(self, acc: Any, value: Any) -> Any:
        """One of both."""
        return acc or value


class ListAgg(NullsChangeNothing):
    """Texts joined. Empty inputs (since 2.0 blank ones) are passed over and such accumulators replaced."""

    def agg(self, acc: Any, value: Any) -> Any:
        """Since 2.0 a blank text is passed over before anybody looks whether there is an accumulator."""
        if not self.field.since("2.0"):
            return super().agg(acc, value)
        if value is None or not self._says(value):
            return acc
        return value if acc is None else self.both(acc, value)

    def _says(self, text: str) -> bool:
        """Whether a text has something to add."""
        if not self.field.since("2.0"):
            return bool(text)
        # Java's Character.isWhitespace: of what Python counts among spaces all but those that do not break
        return any(not char.isspace() or char in "\x85\xa0\u2007\u202f" for char in text)

    def both(self, acc: str, value: str) -> str:
        """Joined; with `distinct` only those parts of the input that are not there yet."""
        given = self.field.text("list-agg-delimiter")
        delimiter = "," if given is None else given
        if not self._says(value):
            return acc
        if not self._says(acc):
            return value
        if not self.field.flag("distinct"):
            return acc + delimiter + value
        there = set(acc.split(delimiter))
        for part in value.split(delimiter):
            if self._says(part) and part not in there:
                there.add(part)
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
