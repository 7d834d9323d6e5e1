"""Aggregate functions whose result is one of the inputs: first, last, min, max, bool_and, bool_or, primary-key.

These functions return row numbers; the values of these rows are taken at the end.

Source: ``FieldLastValueAgg``, ``FieldLastNonNullValueAgg``, ``FieldFirstValueAgg``, ``FieldFirstNonNullValueAgg``,
``FieldMaxAgg``, ``FieldMinAgg``, ``FieldBoolAndAgg``, ``FieldBoolOrAgg``, ``FieldPrimaryKeyAgg``.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import Any, ClassVar, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lsm_core.arrays import valid_mask
from lsm_core.errors import InvalidOption
from lsm_core.merge.functions.base import (
    AGG,
    LATE,
    RETRACT,
    Accumulators,
    AggregateFunction,
    FieldOptions,
    Folding,
    Operations,
    steps,
)
from lsm_core.merge.keys import (
    Ints,
    Mask,
    float_order,
    numbers,
    order_parts,
)
from lsm_core.types import DataType, TypeRoot

NULL: Final = -1
KEEP: Final = -2
"""Result of `PickAggregate.pick` for a group whose accumulator keeps its initial value."""


class PickAggregate(AggregateFunction):
    """Function whose result is an input, null, or the initial accumulator."""

    needs_values: ClassVar[bool] = False
    """Whether :meth:`pick` reads values; if False, it only needs to know which values are null."""

    @property
    def computes(self) -> bool:
        """Whether the function computes result values, which is then faster than choosing row numbers."""
        return False

    def pick(
        self, folding: Folding, initial_valid: Mask, seen: Mask, initial: pa.Array | None = None
    ) -> tuple[Ints, Mask]:
        """Choose the input that is each group's result; a group has the inputs of one key.

        Args:
            folding: inputs of all groups.
            initial_valid: whether each initial accumulator is not null.
            seen: whether each group has received an input.
            initial: initial accumulators, for functions that need values.

        Returns:
            For each group the position of the input in ``folding`` (NULL: the result is null, KEEP: the accumulator is
            unchanged), and a mask of the groups that have received an input.
        """
        if folding.ops is None:
            return self._pick_plain(folding, initial_valid, seen, initial)
        return self._pick_stepwise(folding, initial_valid, seen)

    def _fold(self, folding: Folding, initial: Accumulators) -> Accumulators:
        before = valid_mask(initial.values)
        valid = np.ones(len(folding), np.bool_) if before is None else before
        picks, seen = self.pick(folding, valid, initial.seen, initial.values)
        count = len(folding.values)
        index = np.where(picks == KEEP, count + np.arange(len(picks)), picks)
        values = pa.concat_arrays([folding.values, initial.values]).take(pa.array(index, mask=index < 0))
        return Accumulators(values, seen)

    @abstractmethod
    def _pick_plain(
        self, folding: Folding, initial_valid: Mask, seen: Mask, initial: pa.Array | None
    ) -> tuple[Ints, Mask]: ...

    def _pick_stepwise(self, folding: Folding, initial_valid: Mask, seen: Mask) -> tuple[Ints, Mask]:
        """Choose the input that is each group's result, by applying the next operation of every group at a time.

        Args:
            folding: inputs of all groups, with their operations.
            initial_valid: mask of the initial accumulators that are not null.
            seen: mask of the groups that have received an input before.

        Returns:
            For each group the position of the chosen input in ``folding`` (NULL: the result is null, KEEP: the
            accumulator is unchanged), and a mask of the groups that have received an input.
        """
        assert folding.ops is not None
        picks = np.full(len(folding), KEEP, np.int64)
        seen, has_value, valid = seen.copy(), initial_valid.copy(), folding.valid()
        for groups, rows in steps(folding.offsets):
            before = has_value[groups]
            chosen = self._step(picks[groups], before, seen[groups], rows, valid[rows], folding.ops[rows])
            picks[groups] = chosen
            # a row with null counts as no row
            has_value[groups] = np.where(
                chosen >= 0, valid[np.maximum(chosen, 0)], (chosen == KEEP) & initial_valid[groups]
            )
            seen[groups] |= self._sees(valid[rows], folding.ops[rows], before)
        return picks, seen

    def _step(self, picks: Ints, has_value: Mask, seen: Mask, rows: Ints, valid: Mask, ops: Operations) -> Ints:
        """Apply one more input to each group, and return the position of the input that is each group's result.

        NULL instead of a position means that the result is null; KEEP, that the accumulator is unchanged.

        Args:
            picks: position of each group's result before this input, or NULL, KEEP.
            has_value: mask of the groups whose accumulator is not null.
            seen: mask of the groups that have received an input before.
            rows: position of each group's next input.
            valid: mask of the next inputs that are not null.
            ops: operation of each input.
        """
        raise AssertionError(f"{self.name} needs no steps")

    def _sees(self, valid: Mask, ops: Operations, has_value: Mask) -> Mask:
        return np.ones(len(valid), np.bool_)


def _last_rows(folding: Folding, counts: Mask | None = None) -> Ints:
    """Return the position of each group's last input, or KEEP for none; inputs outside of ``counts`` are ignored."""
    if counts is None:
        return np.where(folding.sizes > 0, folding.offsets[1:] - 1, KEEP)
    number = np.concatenate((np.full(1, KEEP), np.where(counts, np.arange(len(counts)), KEEP)))
    latest = np.maximum.accumulate(number)[folding.offsets[1:]]
    return np.where(latest >= folding.offsets[:-1], latest, KEEP)


def _first_rows(folding: Folding, counts: Mask | None = None) -> Ints:
    """Return the position of each group's first input, or KEEP for none; inputs outside of ``counts`` are ignored."""
    if counts is None:
        return np.where(folding.sizes > 0, folding.offsets[:-1], KEEP)
    total = len(counts)
    number = np.append(np.where(counts, np.arange(total), total), total)
    soonest = np.minimum.accumulate(number[::-1])[::-1][folding.offsets[:-1]]
    return np.where(soonest < folding.offsets[1:], soonest, KEEP)


class LastValue(PickAggregate):
    """Function `last_value`: the newest input, null or not; a retract leaves null, late input is ignored."""

    name: ClassVar[str] = "last_value"
    supports_retract: ClassVar[bool] = True
    retract_leaves_null: ClassVar[bool] = True

    def _pick_plain(
        self, folding: Folding, initial_valid: Mask, seen: Mask, initial: pa.Array | None
    ) -> tuple[Ints, Mask]:
        return _last_rows(folding), seen | (folding.sizes > 0)

    def _pick_stepwise(self, folding: Folding, initial_valid: Mask, seen: Mask) -> tuple[Ints, Mask]:
        assert folding.ops is not None
        picks = _last_rows(folding, folding.ops != LATE)
        is_retracted = (picks >= 0) & (folding.ops[np.maximum(picks, 0)] == RETRACT) if len(folding.ops) else picks >= 0
        picks = np.where(is_retracted, NULL, picks) if self.retract_leaves_null else picks
        return picks, seen | (folding.sizes > 0)


class PrimaryKey(LastValue):
    """Function of primary-key columns: the newest input, null or not, even of a retract; late input is ignored."""

    name: ClassVar[str] = "primary-key"
    retract_leaves_null: ClassVar[bool] = False


class LastNonNullValue(PickAggregate):
    """Function `last_non_null_value`: the newest input that is not null.

    A retract of a non-null value leaves null. Late input only replaces null.
    """

    name: ClassVar[str] = "last_non_null_value"
    supports_retract: ClassVar[bool] = True

    def _pick_plain(
        self, folding: Folding, initial_valid: Mask, seen: Mask, initial: pa.Array | None
    ) -> tuple[Ints, Mask]:
        return _last_rows(folding, folding.valid()), seen | (folding.sizes > 0)

    def _step(self, picks: Ints, has_value: Mask, seen: Mask, rows: Ints, valid: Mask, ops: Operations) -> Ints:
        takes = valid & ((ops == AGG) | ((ops == LATE) & ~has_value))
        return np.where(takes, rows, np.where(valid & (ops == RETRACT), NULL, picks))


def takes_newest(function: AggregateFunction, valid: Mask | None) -> bool:
    """Return whether aggregation without retracts and late inputs always returns the newest version's value.

    Args:
        function: aggregate function of the column.
        valid: mask of the rows that are not null in the column; None if no row is null.
    """
    return isinstance(function, LastValue) or (isinstance(function, LastNonNullValue) and valid is None)


class FirstValue(PickAggregate):
    """Function `first_value`: the first input, null or not.

    Late input replaces this value, as in Java.
    """

    name: ClassVar[str] = "first_value"
    remembers: ClassVar[bool] = True

    def _pick_plain(
        self, folding: Folding, initial_valid: Mask, seen: Mask, initial: pa.Array | None
    ) -> tuple[Ints, Mask]:
        return np.where(seen, KEEP, _first_rows(folding)), seen | (folding.sizes > 0)

    def _step(self, picks: Ints, has_value: Mask, seen: Mask, rows: Ints, valid: Mask, ops: Operations) -> Ints:
        return np.where((ops == LATE) == seen, rows, picks)


class FirstNonNullValue(PickAggregate):
    """Function `first_non_null_value`: the first input that is not null.

    Late input replaces this value, even with null, as in Java.
    """

    name: ClassVar[str] = "first_non_null_value"
    remembers: ClassVar[bool] = True

    def _pick_plain(
        self, folding: Folding, initial_valid: Mask, seen: Mask, initial: pa.Array | None
    ) -> tuple[Ints, Mask]:
        picks = np.where(seen, KEEP, _first_rows(folding, folding.valid()))
        return picks, seen | (picks >= 0)

    def _step(self, picks: Ints, has_value: Mask, seen: Mask, rows: Ints, valid: Mask, ops: Operations) -> Ints:
        late = (ops == LATE) & (seen | ~has_value)
        return np.where(late | ((ops == AGG) & ~seen & valid), rows, picks)

    def _sees(self, valid: Mask, ops: Operations, has_value: Mask) -> Mask:
        # late input swaps the arguments, so the accumulator counts as the first value
        return np.where(ops == LATE, has_value, valid)


class _Extreme(PickAggregate):
    """Function whose result is the greatest or smallest non-null input, in Java's order: NaN greatest, -0.0 < 0.0."""

    needs_values: ClassVar[bool] = True
    greatest: ClassVar[bool]

    @property
    def computes(self) -> bool:
        """Whether values are integers or doubles: they are compared as 64-bit integers and restored from them."""
        kind = self.arrow_type
        return bool(pa.types.is_integer(kind) or pa.types.is_float64(kind))

    def fold_layers(self, values: npt.NDArray[Any], layers: Sequence[Ints]) -> npt.NDArray[Any] | None:
        """Return the minimum or maximum of each group of integers or doubles; None for other types."""
        if not self.computes:
            return None
        extreme, is_float = np.maximum if self.greatest else np.minimum, pa.types.is_floating(self.arrow_type)
        best = float_order(values[layers[0]]) if is_float else values[layers[0]]
        for rows in layers[1:]:
            candidates = float_order(values[rows]) if is_float else values[rows]
            extreme(best[: len(rows)], candidates, out=best[: len(rows)])
        return _from_order(best) if is_float else best

    def _fold(self, folding: Folding, initial: Accumulators) -> Accumulators:
        if not self.computes:
            return super()._fold(folding, initial)
        seen = initial.seen | (folding.sizes > 0)
        non_null = folding.only(folding.valid())
        before = valid_mask(initial.values)
        is_set = np.ones(len(folding), np.bool_) if before is None else before
        extreme = np.maximum if self.greatest else np.minimum
        best, has_input = numbers(initial.values).copy(), non_null.sizes > 0
        if has_input.any():
            group_extremes = extreme.reduceat(numbers(non_null.values), non_null.offsets[:-1][has_input])
            best[has_input] = np.where(is_set[has_input], extreme(best[has_input], group_extremes), group_extremes)
        if pa.types.is_floating(self.arrow_type):
            return Accumulators(pa.array(_from_order(best), mask=~(is_set | has_input)), seen)
        return Accumulators(pa.array(best, mask=~(is_set | has_input)).cast(self.arrow_type), seen)

    def pick(
        self, folding: Folding, initial_valid: Mask, seen: Mask, initial: pa.Array | None = None
    ) -> tuple[Ints, Mask]:
        # the order of arguments does not change an extreme, so late input is ordinary input
        return self._pick_plain(folding, initial_valid, seen, initial)

    def _pick_plain(
        self, folding: Folding, initial_valid: Mask, seen: Mask, initial: pa.Array | None
    ) -> tuple[Ints, Mask]:
        after = seen | (folding.sizes > 0)
        non_null = folding.only(folding.valid())
        groups = non_null.groups
        values, sources = non_null.values, np.arange(len(non_null.values))
        if non_null is not folding:
            sources = non_null.original(sources)
            sources = sources if folding.source is None else np.searchsorted(folding.source, sources)
        if initial is not None and initial_valid.any():
            initial_groups = np.flatnonzero(initial_valid)
            values = pa.concat_arrays([initial.take(pa.array(initial_groups)), values])
            groups = np.concatenate((initial_groups, groups))
            sources = np.concatenate((np.full(len(initial_groups), KEEP), sources))
            order = np.argsort(groups, kind="stable")
            values, groups, sources = values.take(pa.array(order)), groups[order], sources[order]
        picks = np.full(len(folding), KEEP, np.int64)
        if len(values):
            winners = _greatest_rows([part if self.greatest else ~part for part in order_parts(values)], groups)
            picks[groups[winners]] = sources[winners]
        return picks, after


def _from_order(numbers: Ints) -> npt.NDArray[np.float64]:
    """Convert the sortable integers of doubles (`float_order`) back to the doubles."""
    return (numbers ^ ((numbers >> np.int64(63)) & np.int64(0x7FFFFFFFFFFFFFFF))).view(np.float64)


def _greatest_rows(parts: list[Ints], groups: Ints) -> Ints:
    """Return the position of each group's first row with the group's greatest value.

    Args:
        parts: columns of numbers that order the rows, most significant first.
        groups: group of each row, ascending.
    """
    starts = np.flatnonzero(np.concatenate((np.ones(1, np.bool_), groups[1:] != groups[:-1])))
    sizes = np.diff(np.append(starts, len(groups)))
    if len(parts) == 1:
        candidate = parts[0] == np.repeat(np.maximum.reduceat(parts[0], starts), sizes)
        number = np.where(candidate, np.arange(len(groups)), len(groups))
        return np.asarray(np.minimum.reduceat(number, starts))
    candidate = np.ones(len(groups), np.bool_)
    lowest = np.iinfo(np.int64).min
    for part in parts:
        # rows that an earlier part excluded must not win; the lowest number never exceeds another row
        limited = np.where(candidate, part, lowest)
        candidate &= limited == np.repeat(np.maximum.reduceat(limited, starts), sizes)
    number = np.where(candidate, np.arange(len(groups)), len(groups))
    return np.asarray(np.minimum.reduceat(number, starts))


class Max(_Extreme):
    """Function `max`: the greatest input that is not null."""

    name: ClassVar[str] = "max"
    greatest: ClassVar[bool] = True


class Min(_Extreme):
    """Function `min`: the smallest input that is not null."""

    name: ClassVar[str] = "min"
    greatest: ClassVar[bool] = False


class BoolAnd(Min):
    """Function `bool_and`: whether all inputs are true, which is the smallest input, since false < true."""

    name: ClassVar[str] = "bool_and"


class BoolOr(Max):
    """Function `bool_or`: whether any input is true, which is the greatest input, since false < true."""

    name: ClassVar[str] = "bool_or"


_NOT_COMPARABLE = {
    TypeRoot.ARRAY,
    TypeRoot.MAP,
    TypeRoot.MULTISET,
    TypeRoot.ROW,
    TypeRoot.VARIANT,
    TypeRoot.BLOB,
    TypeRoot.GEOMETRY,
    TypeRoot.GEOGRAPHY,
    TypeRoot.UNKNOWN,
    TypeRoot.VECTOR,
}
_COMPARABLE: Final = "a type with an order (not nested, VARIANT, BLOB or GEO)"


def _extreme_factory(function: type[_Extreme], refused: AbstractSet[TypeRoot], accepted: str) -> object:
    def make(kind: DataType, options: FieldOptions) -> AggregateFunction:
        if kind.root in refused:
            key, value = options.key("aggregate-function"), f"{function.name} on type {kind}"
            raise InvalidOption(key, value, f"this function for {accepted}", options.table)
        return function(kind, options)

    return make


FUNCTIONS = {
    "last_value": LastValue,
    "last_non_null_value": LastNonNullValue,
    "first_value": FirstValue,
    "first_non_null_value": FirstNonNullValue,
    "first_not_null_value": FirstNonNullValue,
    "primary-key": PrimaryKey,
    "max": _extreme_factory(Max, _NOT_COMPARABLE, _COMPARABLE),
    "min": _extreme_factory(Min, _NOT_COMPARABLE, _COMPARABLE),
    "bool_and": _extreme_factory(BoolAnd, set(TypeRoot) - {TypeRoot.BOOLEAN}, "BOOLEAN"),
    "bool_or": _extreme_factory(BoolOr, set(TypeRoot) - {TypeRoot.BOOLEAN}, "BOOLEAN"),
}
