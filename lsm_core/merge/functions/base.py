"""Common interface of aggregate functions: one fold over many groups at once, and the operations derived from it.

A group holds the inputs of one key in arrival order. Each input has an operation: it is aggregated, aggregated as late
data (the arguments are swapped), retracted, or hidden from the function.

Source: ``FieldAggregator`` (agg, aggReversed, retract).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lsm_core.arrays import arrow_array, numpy_array, offsets_from, valid_mask
from lsm_core.errors import InvalidOption
from lsm_core.merge.keys import (
    Ints,
    Mask,
)
from lsm_core.options import PaimonVersion, TableOptions
from lsm_core.options.table_options import PAIMON_VERSION
from lsm_core.types import DataType, to_arrow

AGG: Final = 0
LATE: Final = 1
RETRACT: Final = 2
SKIP: Final = 3
Operations = npt.NDArray[np.int8]


class GroupError(Exception):
    """Error of an aggregate function for one group (the inputs of one key); the caller adds table and key.

    Attributes:
        kind: constant that decides the class of the final error, for example OVERFLOW.
        group: number of the group.
        reason: text of the error.
    """

    def __init__(self, kind: str, group: int, reason: str) -> None:
        self.kind, self.group, self.reason = kind, group, reason
        super().__init__(reason)


RETRACT_REFUSED: Final = "retract"
OVERFLOW: Final = "overflow"
INVALID: Final = "invalid"


@dataclass(frozen=True, eq=False)
class Accumulators:
    """Results so far of an aggregate function: one accumulator for each group (the inputs of one key).

    Attributes:
        values: the accumulators.
        seen: mask of the groups for which the function has received an input.
        alone: mask of the groups that were folded one group at a time, not together; None for none.
    """

    values: pa.Array
    seen: Mask
    alone: Mask | None = None


@dataclass(frozen=True)
class FieldOptions:
    """Options `fields.<field>.*` of a table.

    Attributes:
        field: name of the field.
        options: options of the table.
        table: name of the table, for errors.
    """

    field: str
    options: Mapping[str, str]
    table: str = ""

    @property
    def version(self) -> PaimonVersion:
        """Paimon version whose results are reproduced if versions differ."""
        return TableOptions(
            {PAIMON_VERSION: self.options.get(PAIMON_VERSION, PaimonVersion.V1_4)}, self.table
        ).paimon_version

    def key(self, name: str) -> str:
        """Return the full name of an option of this field."""
        return f"fields.{self.field}.{name}"

    def text(self, name: str, default: str | None = None) -> str | None:
        """Return the text of an option of this field, or ``default`` if the option is not set."""
        return self.options.get(self.key(name), default)

    def flag(self, name: str, default: bool = False) -> bool:
        """Return a boolean option.

        Raises:
            InvalidOption: the value is neither true nor false.
        """
        value = self.text(name)
        if value is None:
            return default
        if value.strip().lower() not in {"true", "false"}:
            raise InvalidOption(self.key(name), value, "true or false", self.table)
        return value.strip().lower() == "true"


@dataclass(frozen=True, eq=False)
class Folding:
    """Inputs of one aggregate function for many groups of rows, stored group after group.

    A group has the rows of one key. Some of the caller's rows may be left out, for example ignored retracts; ``source``
    then maps the remaining inputs to the caller's rows.

    Attributes:
        values: the inputs; group g has rows ``offsets[g]`` up to, but not including, ``offsets[g + 1]``.
        offsets: position of the first row of each group (rows of one key), and the end.
        ops: operation of each input (AGG, LATE or RETRACT); None if all are AGG.
        source: the caller's row number of each input; None if no input was left out.
    """

    values: pa.Array
    offsets: Ints
    ops: Operations | None
    source: Ints | None

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @cached_property
    def sizes(self) -> Ints:
        """Number of inputs of each group."""
        return np.diff(self.offsets)

    @cached_property
    def groups(self) -> Ints:
        """Number of the group of each input."""
        return np.repeat(np.arange(len(self)), self.sizes)

    def original(self, rows: Ints) -> Ints:
        """Return the caller's row numbers (:attr:`source`) of the inputs at positions ``rows`` of :attr:`values`."""
        return rows if self.source is None else self.source[rows]

    def only(self, keep: Mask) -> Folding:
        """Return only the inputs in the mask ``keep``; groups may become empty."""
        if keep.all():
            return self
        kept = np.flatnonzero(keep)
        offsets = offsets_from(keep)[self.offsets]
        ops = None if self.ops is None else self.ops[kept]
        return Folding(self.values.take(arrow_array(kept)), offsets.astype(np.int64), ops, self.original(kept))

    def valid(self) -> Mask:
        """Return a mask of the inputs that are not null."""
        mask = valid_mask(self.values)
        return np.ones(len(self.values), np.bool_) if mask is None else mask


def steps(offsets: Ints) -> Iterator[tuple[Ints, Ints]]:
    """Yield the first rows of all groups, then the second rows, and so on.

    A left fold over every group takes as many steps as the longest group has rows.

    Args:
        offsets: position of the first row of each group (rows of one key), and the end.

    Yields:
        (numbers of the groups that have a row in this step, row number of each).
    """
    sizes = np.diff(offsets)
    # 16-bit numbers are sorted by radix, in a fraction of the time
    short = np.minimum(sizes, np.iinfo(np.int16).max).astype(np.int16)
    by_size = np.argsort(-short, kind="stable")
    if len(short) and int(short.max()) == np.iinfo(np.int16).max:
        by_size = np.argsort(-sizes, kind="stable")
    ordered = sizes[by_size]
    for number in range(int(ordered[0]) if len(ordered) else 0):
        groups = by_size[: int(np.searchsorted(-ordered, -number, side="left"))]
        yield groups, offsets[groups] + number


class AggregateFunction(ABC):
    """Aggregate function of one field; immutable, folds many groups at a time."""

    name: ClassVar[str]
    supports_retract: ClassVar[bool] = False
    remembers: ClassVar[bool] = False
    """Whether later results depend on :attr:`Accumulators.seen` in addition to the accumulator's value."""

    def __init__(self, kind: DataType, options: FieldOptions) -> None:
        self.type, self.options, self.field = kind, options, options.field
        self.arrow_type = to_arrow(kind)
        self.ignore_retract = options.flag("ignore-retract")

    def fold_ops(
        self, values: pa.Array, offsets: Ints, ops: Operations | None = None, initial: Accumulators | None = None
    ) -> Accumulators:
        """Fold the inputs of each group, in order, onto its initial accumulator.

        Args:
            values: inputs of all groups, in the field's Arrow type; group g is ``values[offsets[g]:offsets[g + 1]]``.
            offsets: position of the first input of each group (inputs of one key), and the end.
            ops: operation of each input (int8); None if all are AGG.
            initial: initial accumulators; None for null ones that have received no input.

        Raises:
            GroupError: the function does not support a retract or a value.
        """
        folding = self.prepare(values, offsets, ops)
        if initial is None:
            count = len(folding)
            initial = Accumulators(pa.nulls(count, self.arrow_type), np.zeros(count, np.bool_))
        return self._fold(folding, initial)

    def prepare(self, values: pa.Array, offsets: Ints, ops: Operations | None) -> Folding:
        """Return the inputs for the function, without those of operation SKIP and without ignored retracts.

        Args:
            values: inputs of all groups; group g is ``values[offsets[g]:offsets[g + 1]]``.
            offsets: position of the first input of each group (inputs of one key), and the end.
            ops: operation of each input; None if all are AGG.

        Raises:
            GroupError: a retract is not supported.
        """
        folding = Folding(values, np.asarray(offsets, np.int64), ops, None)
        if ops is None or not ops.any():
            return Folding(values, folding.offsets, None, None)
        is_hidden = ops == SKIP
        if self.ignore_retract:
            is_hidden |= ops == RETRACT
        if is_hidden.any():
            folding = folding.only(~is_hidden)
        if folding.ops is not None and not folding.ops.any():
            return Folding(folding.values, folding.offsets, None, folding.source)
        if not self.supports_retract and folding.ops is not None and (is_refused := folding.ops == RETRACT).any():
            group = int(folding.groups[int(np.argmax(is_refused))])
            raise GroupError(RETRACT_REFUSED, group, str(self.refusal))
        return folding

    @property
    def refusal(self) -> str | None:
        """Why retracts raise an error, and the option to ignore retracts; None if the function accepts retracts."""
        if self.supports_retract or self.ignore_retract:
            return None
        reason = f"aggregate function '{self.name}' of column '{self.field}' does not support retracts (-U, -D)"
        return f"{reason}; '{self.options.key('ignore-retract')}' = 'true' ignores them"

    def fold_layers(self, values: npt.NDArray[Any], layers: Sequence[Ints]) -> npt.NDArray[Any] | None:
        """Aggregate numbers without nulls, retracts or late inputs, of many groups at once.

        Args:
            values: the numbers.
            layers: ``layers[k]`` has the rows of the k-th inputs of all groups; the largest groups come first.

        Returns:
            One result for each group of ``layers[0]``, or None if the function cannot fold these values this way.
        """
        return None

    @abstractmethod
    def _fold(self, folding: Folding, initial: Accumulators) -> Accumulators:
        """Fold the prepared inputs of each group, in order, onto the group's initial accumulator."""

    # -- derived operations ----------------------------------------------------------------------------------------

    def agg(self, accumulator: pa.Array, value: pa.Array) -> pa.Array:
        """Return each accumulator after one input was aggregated.

        Args:
            accumulator: result so far (accumulator) of each group, to which one input is applied.
            value: the inputs.
        """
        return self._fold_pairs(accumulator, value, AGG)

    def agg_reversed(self, accumulator: pa.Array, value: pa.Array) -> pa.Array:
        """Return each accumulator after one late input was aggregated (accumulator and input swapped).

        Args:
            accumulator: result so far (accumulator) of each group, to which one input is applied.
            value: the inputs.
        """
        return self._fold_pairs(accumulator, value, LATE)

    def retract(self, accumulator: pa.Array, value: pa.Array) -> pa.Array:
        """Return each accumulator after one input was retracted.

        Args:
            accumulator: result so far (accumulator) of each group, to which one input is applied.
            value: the inputs.
        """
        return self._fold_pairs(accumulator, value, RETRACT)

    def fold(self, values: pa.Array, group_offsets: Ints, kinds: npt.NDArray[np.int8] | None = None) -> pa.Array:
        """Return the result of each group, folded from a null accumulator.

        Args:
            values: inputs of all groups.
            group_offsets: position of the first input of each group (inputs of one key), and the end.
            kinds: row kind of each input; -U (1) and -D (3) retract. None if all are added.
        """
        ops = None if kinds is None else np.where((np.asarray(kinds) & 1) == 1, RETRACT, AGG).astype(np.int8)
        return self.fold_ops(values, np.asarray(group_offsets, np.int64), ops).values

    def _fold_pairs(self, accumulator: pa.Array, value: pa.Array, op: int) -> pa.Array:
        seen = numpy_array(accumulator.is_valid())
        offsets = np.arange(len(value) + 1, dtype=np.int64)
        ops = np.full(len(value), op, np.int8)
        return self.fold_ops(value, offsets, ops, Accumulators(accumulator, seen)).values
