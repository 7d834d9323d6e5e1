"""Sums and products: exact, step by step in arrival order, with Paimon's rules for nulls, overflow and retracts.

An integer result outside the range of its type is an error at that step. Floats are added in arrival order, so the
result equals Java's bit for bit. A decimal that leaves its precision becomes null, and the next input starts again.

Source: ``FieldSumAgg``, ``FieldProductAgg``, ``DecimalUtils``.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from decimal import ROUND_HALF_UP, Context, Decimal, Inexact
from typing import Any, ClassVar, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lsm_core.arrays import arrow_array, arrow_scalar, numpy_array, offsets_from, valid_mask, values_of
from lsm_core.errors import InvalidOption
from lsm_core.merge.functions.base import (
    INVALID,
    OVERFLOW,
    RETRACT,
    Accumulators,
    AggregateFunction,
    FieldOptions,
    Folding,
    GroupError,
    steps,
)
from lsm_core.merge.keys import (
    Ints,
    Mask,
)
from lsm_core.types import DataType, TypeRoot

_INTEGERS: Final = {TypeRoot.TINYINT: 8, TypeRoot.SMALLINT: 16, TypeRoot.INT: 32, TypeRoot.BIGINT: 64}
_FLOATS: Final[dict[TypeRoot, type[Any]]] = {TypeRoot.FLOAT: np.float32, TypeRoot.DOUBLE: np.float64}
_LOW_HALF: Final = np.int64(0xFFFFFFFF)
_SHIFT: Final = np.int64(32)
_LONG_GROUP: Final = 64
"""Groups with more inputs than this are folded alone; all other groups are folded together, one step at a time."""
_EXACT: Final = Context(prec=200)


Numbers = tuple[pa.Array, Mask | None]


class _Numeric(AggregateFunction):
    """Aggregate function of numbers that ignores null inputs and replaces a null accumulator by the first input."""

    supports_retract: ClassVar[bool] = True

    def _fold(self, folding: Folding, initial: Accumulators) -> Accumulators:
        seen = initial.seen | (folding.sizes > 0)
        inputs = folding.only(folding.valid())
        before = valid_mask(initial.values)
        is_set = np.ones(len(folding), np.bool_) if before is None else before
        if not len(inputs.values):
            return Accumulators(initial.values, seen)
        numbers, alone = self._numbers(inputs, initial.values, is_set)
        return Accumulators(numbers, seen, alone)

    @abstractmethod
    def _numbers(self, inputs: Folding, initial: pa.Array, has_initial: Mask) -> Numbers:
        """Return the accumulators after all inputs, and a mask of the groups that were folded one by one (or None).

        Args:
            inputs: inputs of all groups, without nulls.
            initial: initial accumulator of each group.
            has_initial: mask of the initial accumulators that are not null.
        """

    def _overflow(self, group: int) -> GroupError:
        return GroupError(OVERFLOW, group, f"{self.name} of column '{self.field}' leaves the range of {self.type}")


def _accumulate(step: np.ufunc, values: npt.NDArray[Any], layers: Sequence[Ints]) -> npt.NDArray[Any]:
    """Combine the inputs of each group in order, one input of every group at a time.

    Args:
        step: function of two arrays, the results so far and the next inputs.
        values: inputs of all groups.
        layers: ``layers[k]`` has the rows of the k-th inputs of all groups; the largest groups come first.

    Returns:
        One result for each group of ``layers[0]``.
    """
    total = values[layers[0]]
    with np.errstate(all="ignore"):
        for rows in layers[1:]:
            step(total[: len(rows)], values[rows], out=total[: len(rows)])
    return total


def _array(values: npt.NDArray[Any], valid: Mask, kind: pa.DataType) -> pa.Array:
    return arrow_array(values, mask=~valid).cast(kind)


class SumIntegers(_Numeric):
    """Function `sum` of integers.

    The prefix sums of all groups are computed at once, in two 32-bit halves, so that no 64-bit sum wraps undetected.
    """

    name: ClassVar[str] = "sum"

    def _numbers(self, inputs: Folding, initial: pa.Array, has_initial: Mask) -> Numbers:
        values = numpy_array(inputs.values.cast(pa.int64())).astype(np.int64, copy=False)
        start = numpy_array(initial.cast(pa.int64()).fill_null(arrow_scalar(0)))
        has_value = has_initial | (inputs.sizes > 0)
        bits = _INTEGERS[self.type.root]
        minus = inputs.ops == RETRACT if inputs.ops is not None else None
        largest = max(-int(values.min()), int(values.max()))
        initial_bound = max(-int(start.min(initial=0)), int(start.max(initial=0)))
        most = largest * int(inputs.sizes.max()) + initial_bound
        if most < 1 << (bits - 1) and largest * len(values) + initial_bound < 1 << 63:
            # no prefix of any group can reach the limit, and the sum of all inputs fits 64 bits
            signed = values if minus is None else np.where(minus, -values, values)
            running = offsets_from(signed)
            total = start + running[inputs.offsets[1:]] - running[inputs.offsets[:-1]]
            return _array(total, has_value, self.arrow_type), None
        return _array(self._sum_exactly(values, minus, start, inputs, bits), has_value, self.arrow_type), None

    def fold_layers(self, values: npt.NDArray[Any], layers: Sequence[Ints]) -> npt.NDArray[Any] | None:
        """Return the sum of each group, if no sum can exceed the range of the integer type.

        Args:
            values: inputs of all groups.
            layers: ``layers[k]`` has the rows of the k-th inputs of all groups; the largest groups come first.

        Returns:
            One sum for each group of ``layers[0]``, or None if a sum could exceed the range.
        """
        largest = max(-int(values.min()), int(values.max()))
        if largest * len(layers) >= 1 << (_INTEGERS[self.type.root] - 1):
            return None
        return _accumulate(np.add, values, layers)

    def _sum_exactly(self, values: Ints, minus: Mask | None, start: Ints, inputs: Folding, bits: int) -> Ints:
        """Return the sum of each group, by prefix sums of upper and lower halves.

        Args:
            values: inputs of all groups.
            minus: mask of the inputs to subtract; None to add all.
            start: initial sum of each group.
            inputs: the same inputs with the limits of their groups.
            bits: width of the integer type.

        Raises:
            GroupError: a prefix sum overflows.
        """
        high, low = values >> _SHIFT, values & _LOW_HALF
        if minus is not None:
            high, low = np.where(minus, -high, high), np.where(minus, -low, low)
        groups = inputs.groups
        begins = inputs.offsets[:-1][groups]

        def prefix(half: Ints, first: Ints) -> Ints:
            running = offsets_from(half)
            return np.asarray(running[1:] - running[begins] + first[groups])

        low_sum = prefix(low, start & _LOW_HALF)
        high_sum = prefix(high, start >> _SHIFT) + (low_sum >> _SHIFT)
        low_sum &= _LOW_HALF
        if bits == 64:
            is_overflow = (high_sum < -(1 << 31)) | (high_sum >= 1 << 31)
            whole = (high_sum << _SHIFT) | low_sum
        else:
            whole = (high_sum << _SHIFT) | low_sum
            is_overflow = (whole < -(1 << (bits - 1))) | (whole >= 1 << (bits - 1))
        if is_overflow.any():
            raise self._overflow(int(groups[int(np.argmax(is_overflow))]))
        total = start.copy()
        has_input = inputs.sizes > 0
        total[has_input] = whole[inputs.offsets[1:][has_input] - 1]
        return total


class _Stepwise(_Numeric):
    """Aggregate function of numbers that is folded with NumPy in arrival order.

    Short groups are folded together, one input of each group at a time. Each long group may be folded alone.
    """

    def _numbers(self, inputs: Folding, initial: pa.Array, has_initial: Mask) -> Numbers:
        dtype = self._dtype()
        values = values_of(inputs.values, dtype)
        total = np.array(np.where(has_initial, values_of(initial, dtype), dtype(0)), dtype)
        has_value = has_initial.copy()
        minus = inputs.ops == RETRACT if inputs.ops is not None else np.zeros(len(values), np.bool_)
        long = self._long_groups(inputs, minus)
        for group in np.flatnonzero(long).tolist():  # few groups: each has many rows
            part = values[inputs.offsets[group] : inputs.offsets[group + 1]]
            part = np.concatenate((total[group : group + 1], part)) if has_value[group] else part
            total[group], has_value[group] = self._fold_long_group(part), True
        kept = inputs.only(~long[inputs.groups]) if long.any() else inputs
        if kept is not inputs:
            values, minus = values_of(kept.values, dtype), minus[~long[inputs.groups]]
        with np.errstate(all="ignore"):
            for groups, rows in steps(kept.offsets):
                total[groups], has_value[groups] = self._step(
                    total[groups], has_value[groups], values[rows], minus[rows], groups
                )
        return _array(total, has_value, self.arrow_type), None

    @abstractmethod
    def _dtype(self) -> type[Any]:
        """Return NumPy's scalar type of the field."""

    def _long_groups(self, inputs: Folding, minus: Mask) -> Mask:
        """Return a mask of the groups that are faster to fold alone, with :meth:`_fold_long_group`."""
        return np.zeros(len(inputs), np.bool_)

    def _fold_long_group(self, values: npt.NDArray[Any]) -> Any:
        """Fold all inputs of one long group."""
        raise AssertionError(f"{self.name} folds no group by itself")

    @abstractmethod
    def _step(
        self, total: npt.NDArray[Any], has_value: Mask, value: npt.NDArray[Any], minus: Mask, groups: Ints
    ) -> tuple[npt.NDArray[Any], Mask]:
        """Return the accumulators after one more input of each group, and a mask of the accumulators that are not null.

        Args:
            total: accumulator of each group.
            has_value: mask of the accumulators that are not null.
            value: input of each group.
            minus: mask of the inputs that are retracts.
            groups: number of each group, for errors.
        """


class SumFloats(_Stepwise):
    """Function `sum` of floats; each addition is rounded as in Java."""

    name: ClassVar[str] = "sum"
    _adding: ClassVar[np.ufunc] = np.add

    def fold_layers(self, values: npt.NDArray[Any], layers: Sequence[Ints]) -> npt.NDArray[Any] | None:
        """Return the sum of each group, or in the subclass `ProductFloats` the product.

        Args:
            values: inputs of all groups.
            layers: ``layers[k]`` has the rows of the k-th inputs of all groups; the largest groups come first.

        Returns:
            One number for each group of ``layers[0]``, never None.
        """
        return _accumulate(self._adding, values, layers)

    def _dtype(self) -> type[Any]:
        return _FLOATS[self.type.root]

    def _long_groups(self, inputs: Folding, minus: Mask) -> Mask:
        long = inputs.sizes > _LONG_GROUP
        long[inputs.groups[minus]] = False
        return long

    def _fold_long_group(self, values: npt.NDArray[Any]) -> Any:
        # `accumulate` adds from left to right; `sum` and `reduceat` add in pairs and give other bits
        with np.errstate(all="ignore"):
            return self._adding.accumulate(values)[-1]

    def _step(
        self, total: npt.NDArray[Any], has_value: Mask, value: npt.NDArray[Any], minus: Mask, groups: Ints
    ) -> tuple[npt.NDArray[Any], Mask]:
        signed = np.where(minus, -value, value)
        return np.where(has_value, total + signed, signed), np.ones(len(has_value), np.bool_)


class ProductFloats(SumFloats):
    """Function `product` of floats; a retract divides, and keeps a null accumulator null."""

    name: ClassVar[str] = "product"
    _adding: ClassVar[np.ufunc] = np.multiply

    def _step(
        self, total: npt.NDArray[Any], has_value: Mask, value: npt.NDArray[Any], minus: Mask, groups: Ints
    ) -> tuple[npt.NDArray[Any], Mask]:
        changed = np.where(minus, total / value, total * value)
        return np.where(has_value, changed, value), has_value | ~minus


class ProductIntegers(_Stepwise):
    """Function `product` of integers; a retract divides and truncates the fraction."""

    name: ClassVar[str] = "product"

    def _dtype(self) -> type[Any]:
        return np.dtype(f"i{_INTEGERS[self.type.root] // 8}").type

    def _step(
        self, total: npt.NDArray[Any], has_value: Mask, value: npt.NDArray[Any], minus: Mask, groups: Ints
    ) -> tuple[npt.NDArray[Any], Mask]:
        left, right = total.astype(np.int64), value.astype(np.int64)
        bits = _INTEGERS[self.type.root]
        low, high = -(1 << (bits - 1)), (1 << (bits - 1)) - 1
        with np.errstate(all="ignore"):
            product = left * right
            safe = np.where(left == 0, 1, left)
            # NumPy's division rounds down: exact here, because it only inverts the multiplication
            wrapped = (left != 0) & ((product // safe != right) | ((left == -1) & (right == np.iinfo(np.int64).min)))
            divisor = np.where(right == 0, 1, right)
            down = left // divisor
            quotient = down + ((down < 0) & (down * divisor != left))  # rounds towards zero, as Java's
        by_zero = minus & has_value & (right == 0)
        if by_zero.any():
            group = int(groups[int(np.argmax(by_zero))])
            raise GroupError(INVALID, group, f"{self.name} of column '{self.field}' cannot retract a zero")
        is_past_max = minus & has_value & (divisor == -1) & (left == low)
        is_overflow = is_past_max | (~minus & has_value & (wrapped | (product < low) | (product > high)))
        if is_overflow.any():
            raise self._overflow(int(groups[int(np.argmax(is_overflow))]))
        changed = np.where(minus, quotient, product)
        return np.where(has_value, changed, right).astype(total.dtype), has_value | ~minus


class _Decimals(_Numeric):
    """Aggregate function of decimals, which is computed one group at a time with Python's exact arithmetic."""

    def _numbers(self, inputs: Folding, initial: pa.Array, has_initial: Mask) -> Numbers:
        totals: list[Decimal | None] = initial.to_pylist()
        numbers: list[Decimal] = inputs.values.to_pylist()
        ops = inputs.ops
        for group in np.flatnonzero(inputs.sizes > 0).tolist():
            total = totals[group]
            for row in range(int(inputs.offsets[group]), int(inputs.offsets[group + 1])):
                total = self._next(total, numbers[row], ops is not None and ops[row] == RETRACT, group)
            totals[group] = total
        return pa.array(totals, self.arrow_type), inputs.sizes + has_initial > 1

    @abstractmethod
    def _next(self, total: Decimal | None, value: Decimal, minus: bool, group: int) -> Decimal | None:
        """Return the accumulator of ``group`` after one more input ``value``; None for null.

        ``total`` is the accumulator before. ``minus``: the input is a retract.
        """

    def _round_to_type(self, number: Decimal) -> Decimal | None:
        scaled = number.quantize(Decimal(1).scaleb(-(self.type.scale or 0)), rounding=ROUND_HALF_UP, context=_EXACT)
        return scaled if len(scaled.as_tuple().digits) <= (self.type.precision or 10) else None


class SumDecimals(_Decimals):
    """Function `sum` of decimals: by prefix sums if no sum can leave the precision, else input by input."""

    name: ClassVar[str] = "sum"

    def _numbers(self, inputs: Folding, initial: pa.Array, has_initial: Mask) -> Numbers:
        sums = self._sum_unscaled(inputs, initial, has_initial)
        return super()._numbers(inputs, initial, has_initial) if sums is None else (sums, None)

    def _sum_unscaled(self, inputs: Folding, initial: pa.Array, has_initial: Mask) -> pa.Array | None:
        """Return the sum of each group, computed from unscaled 64-bit values; None if a sum could leave the precision.

        None is also returned if a value has more than 64 bits.
        """
        precision = self.type.precision or 10
        halves = values_of(inputs.values, np.dtype((np.int64, (2,))))
        initial_halves = values_of(initial, np.dtype((np.int64, (2,))))
        values, start = halves[:, 0], np.where(has_initial, initial_halves[:, 0], 0)
        if (halves[:, 1] != values >> np.int64(63)).any() or (
            initial_halves[has_initial, 1] != initial_halves[has_initial, 0] >> np.int64(63)
        ).any():
            return None
        largest = max(-int(values.min()), int(values.max()))
        first = max(-int(start.min(initial=0)), int(start.max(initial=0)))
        limit = min(10**precision, 1 << 63)
        if largest * int(inputs.sizes.max()) + first >= limit or largest * len(values) + first >= 1 << 63:
            return None
        signed = values if inputs.ops is None else np.where(inputs.ops == RETRACT, -values, values)
        running = offsets_from(signed)
        total = start + running[inputs.offsets[1:]] - running[inputs.offsets[:-1]]
        words = np.ascontiguousarray(np.stack((total, total >> np.int64(63)), axis=1))
        has_value = has_initial | (inputs.sizes > 0)
        bits = arrow_array(has_value).buffers()[1]
        nulls = len(has_value) - int(has_value.sum())
        return pa.Array.from_buffers(
            self.arrow_type, len(has_value), [bits if nulls else None, pa.py_buffer(words)], nulls
        )

    def _next(self, total: Decimal | None, value: Decimal, minus: bool, group: int) -> Decimal | None:
        signed = _EXACT.minus(value) if minus else value
        return signed if total is None else self._round_to_type(_EXACT.add(total, signed))


class ProductDecimals(_Decimals):
    """Function `product` of decimals, rounded half up to the scale; a retract must divide exactly."""

    name: ClassVar[str] = "product"

    def _next(self, total: Decimal | None, value: Decimal, minus: bool, group: int) -> Decimal | None:
        if not minus:
            return value if total is None else self._round_to_type(_EXACT.multiply(total, value))
        if total is None:
            return None
        if value == 0:
            raise GroupError(INVALID, group, f"{self.name} of column '{self.field}' cannot retract a zero")
        dividing = _EXACT.copy()
        dividing.clear_flags()
        quotient = dividing.divide(total, value)
        if dividing.flags[Inexact]:
            raise GroupError(INVALID, group, f"{self.name} of column '{self.field}': {total} / {value} does not end")
        return self._round_to_type(quotient)


def _numeric(name: str, integers: type[_Numeric], floats: type[_Numeric], decimals: type[_Numeric]) -> Any:
    def make(kind: DataType, options: FieldOptions) -> AggregateFunction:
        if kind.root in _INTEGERS:
            return integers(kind, options)
        if kind.root in _FLOATS:
            return floats(kind, options)
        if kind.root is TypeRoot.DECIMAL:
            return decimals(kind, options)
        accepted = "this function for TINYINT, SMALLINT, INT, BIGINT, FLOAT, DOUBLE or DECIMAL"
        raise InvalidOption(options.key("aggregate-function"), f"{name} on type {kind}", accepted, options.table)

    return make


FUNCTIONS = {
    "sum": _numeric("sum", SumIntegers, SumFloats, SumDecimals),
    "product": _numeric("product", ProductIntegers, ProductFloats, ProductDecimals),
}
