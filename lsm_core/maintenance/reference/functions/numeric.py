"""Functions `sum` and `product`, exact: integers out of range raise, decimals out of range become null."""

from __future__ import annotations

import math
import struct
from decimal import ROUND_HALF_UP, Context, Decimal
from fractions import Fraction
from typing import Any, Final

from lsm_core.errors import ArithmeticOverflow, InvalidData
from lsm_core.maintenance.reference.functions.base import Field, Function, NullsChangeNothing
from lsm_core.types import TypeRoot

_BITS: Final = {TypeRoot.TINYINT: 8, TypeRoot.SMALLINT: 16, TypeRoot.INT: 32, TypeRoot.BIGINT: 64}
_EXACT: Final = Context(prec=200, rounding=ROUND_HALF_UP)


def fit_to_type(field: Field, value: Any) -> Any:
    """Convert a result to the column's type; a decimal that does not fit becomes None.

    Raises:
        ArithmeticOverflow: an integer is out of range.
    """
    root = field.type.root
    if root in _BITS:
        limit = 1 << (_BITS[root] - 1)
        if not -limit <= value < limit:
            raise ArithmeticOverflow(f"column {field.name}: {value} is out of the range of {field.type}")
        return value
    if root is TypeRoot.FLOAT:
        try:
            return float(struct.unpack("f", struct.pack("f", value))[0])
        except OverflowError:
            return math.copysign(math.inf, value)
    if root is TypeRoot.DECIMAL:
        scale = field.type.scale or 0
        rounded = value.quantize(Decimal(1).scaleb(-scale), context=_EXACT)
        return rounded if abs(rounded.scaleb(scale, _EXACT)) < 10 ** (field.type.precision or 0) else None
    return value


class Sum(NullsChangeNothing):
    """Sum of the values that are not null."""

    def combine(self, acc: Any, value: Any) -> Any:
        """Return acc + value."""
        return fit_to_type(self.field, _EXACT.add(acc, value) if isinstance(acc, Decimal) else acc + value)

    def retract(self, acc: Any, value: Any) -> Any:
        """Return acc - value; without an accumulator, -value."""
        if value is None:
            return acc
        if acc is None:
            return fit_to_type(self.field, value.copy_negate() if isinstance(value, Decimal) else -value)
        return fit_to_type(self.field, _EXACT.subtract(acc, value) if isinstance(acc, Decimal) else acc - value)


class Product(NullsChangeNothing):
    """Product of the values that are not null."""

    def combine(self, acc: Any, value: Any) -> Any:
        """Return acc x value."""
        return fit_to_type(self.field, _EXACT.multiply(acc, value) if isinstance(acc, Decimal) else acc * value)

    def retract(self, acc: Any, value: Any) -> Any:
        """Return acc / value; integers truncate, decimals must divide exactly."""
        if acc is None or value is None:
            return acc
        if isinstance(acc, float):
            # IEEE division; Python raises for a division by zero.
            if value != 0:
                return fit_to_type(self.field, acc / value)
            by_zero = math.copysign(math.inf, acc) * math.copysign(1.0, value)
            return fit_to_type(self.field, math.nan if acc == 0 or math.isnan(acc) else by_zero)
        if not value:
            raise InvalidData("", self.field.name, f"{acc} divided by zero")
        exact = Fraction(acc) / Fraction(value)
        if isinstance(acc, int):
            return fit_to_type(self.field, math.trunc(exact))
        left = exact.denominator
        for prime in (2, 5):
            while left % prime == 0:
                left //= prime
        if left != 1:
            raise InvalidData("", self.field.name, f"{acc} / {value} has no exact decimal")
        return fit_to_type(self.field, _EXACT.divide(Decimal(exact.numerator), Decimal(exact.denominator)))


FUNCTIONS: Final[dict[str, type[Function]]] = {"sum": Sum, "product": Product}
