"""What every function offers, and what it is told of its column."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lsm_core.errors import RetractNotSupported
from lsm_core.types import DataType


@dataclass(frozen=True)
class Field:
    """A column with its options."""

    name: str
    type: DataType
    options: Mapping[str, str]

    def text(self, option: str) -> str | None:
        """`fields.<c>.<option>`."""
        return self.options.get(f"fields.{self.name}.{option}")

    def flag(self, option: str) -> bool:
        """Whether an option is on."""
        return (self.text(option) or "false").strip().lower() == "true"

    def since(self, version: str) -> bool:
        """Whether the table follows Paimon ``version`` or a newer one."""
        followed = self.options.get("dredge.paimon-version", "1.4")
        return [int(part) for part in followed.split(".")] >= [int(part) for part in version.split(".")]

    def names(self, option: str) -> list[str]:
        """An option that is a list of names."""
        return [name.strip() for name in (self.text(option) or "").split(",") if name.strip()]


class Function:
    """A function of one column; made anew for every key."""

    def __init__(self, field: Field) -> None:
        self.field = field

    def agg(self, acc: Any, value: Any) -> Any:
        """The accumulator after an input."""
        raise AssertionError(f"{type(self).__name__} says nothing of inputs {acc!r}, {value!r}")

    def agg_reversed(self, acc: Any, value: Any) -> Any:
        """The accumulator after an input that comes before it."""
        return self.agg(value, acc)

    def retract(self, acc: Any, value: Any) -> Any:
        """The accumulator after an input is taken back."""
        raise RetractNotSupported(
            f"column {self.field.name}: {type(self).__name__} of {acc!r} cannot take back {value!r}"
        )


class NullsChangeNothing(Function):
    """Functions whose null inputs are passed over: only :meth:`both` is left to say."""

    def agg(self, acc: Any, value: Any) -> Any:
        """The one that is not null, else :meth:`both`."""
        if acc is None or value is None:
            return value if acc is None else acc
        return self.both(acc, value)

    def both(self, acc: Any, value: Any) -> Any:
        """Neither is null."""
        raise AssertionError(f"{type(self).__name__} says nothing of {acc!r} and {value!r}")


class IgnoringRetracts(Function):
    """`fields.<c>.ignore-retract`."""

    def __init__(self, inner: Function) -> None:
        super().__init__(inner.field)
        self._inner = inner

    def agg(self, acc: Any, value: Any) -> Any:
        """As the function itself."""
        return self._inner.agg(acc, value)

    def agg_reversed(self, acc: Any, value: Any) -> Any:
        """As the function itself."""
        return self._inner.agg_reversed(acc, value)

    def retract(self, acc: Any, value: Any) -> Any:
        """Nothing happens."""
        del value
        return acc
