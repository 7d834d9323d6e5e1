"""What every aggregate function of a field offers: one fold over many groups at once, and what follows from it.

A group holds the inputs of one key in arrival order. Each input has an operation: it is aggregated, aggregated as late data
(the arguments change places), retracted, or not shown to the function (Java `FieldAggregator`: agg, aggReversed, retract).
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
from lsm_core.merge.comparable import (
    Ints,
    Mask,
)
from lsm_core.options import PaimonVersion, TableOptions
from lsm_core.options.paimon_version import KEY as PAIMON_VERSION
from lsm_core.types import DataType, to_arrow

AGG: Final = 0
LATE: Final = 1
RETRACT: Final = 2
SKIP: Final = 3
Operations = npt.NDArray[np.int8]


class GroupError(Exception):
    """Group number ``group`` cannot be folded. The caller knows table and key, and raises ``kind`` with them."""

    def __init__(self, kind: str, group: int, reason: str) -> None:
        self.kind, self.group, self.reason = kind, group, reason
        super().__init__(reason)


RETRACT_REFUSED: Final = "retract"
OVERFLOW: Final = "overflow"
INVALID: Final = "invalid"


@dataclass(frozen=True, eq=False)
class Accumulators:
    """One accumulator a group, and whether the function was given an input for it already.

    ``alone``: which groups were folded by themselves, one after another; None = none of them.
    """

    values: pa.Array
    seen: Mask
    alone: Mask | None = None


@dataclass(frozen=True)
class FieldOptions:
    """The options `fields.<field>.*` of a table."""

    field: str
    options: Mapping[str, str]
    table: str = ""

    @property
    def version(self) -> PaimonVersion:
        """Whose answers are given, where versions of Paimon differ."""
        return TableOptions(
            {PAIMON_VERSION: self.options.get(PAIMON_VERSION, PaimonVersion.V1_4)}, self.table
        ).paimon_version

    def key(self, name: str) -> str:
        """The full name of an option of this field."""
        return f"fields.{self.field}.{name}"

    def text(self, name: str, default: str | None = None) -> str | None:
        """The value as it stands, or the default."""
        return self.options.get(self.key(name), default)

    def flag(self, name: str, default: bool = False) -> bool:
        """A boolean. Raises InvalidOption."""
        value = self.text(name)
        if value is None:
            return default
        if value.strip().lower() not in {"true", "false"}:
            raise InvalidOption(self.key(name), value, "true or false", self.table)
        return value.strip().lower() == "true"


@dataclass(frozen=True, eq=False)
class Folding:
    """Inputs of many groups without those that are not shown: group g is rows ``offsets[g]`` to before ``offsets[g + 1]``.

    ``source``: where each row stood before. ``ops`` None: all are plainly aggregated.
    """

    values: pa.Array
    offsets: Ints
    ops: Operations | None
    source: Ints | None

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @cached_property
    def sizes(self) -> Ints:
        """Inputs of each group."""
        return np.diff(self.offsets)

    @cached_property
    def groups(self) -> Ints:
        """The group of each row."""
        return np.repeat(np.arange(len(self)), self.sizes)

    def original(self, rows: Ints) -> Ints:
        """Row numbers as the caller counts them."""
        return rows if self.source is None else self.source[rows]

    def only(self, keep: Mask) -> Folding:
        """Without the rows for which ``keep`` is false; groups may become empty."""
        if keep.all():
            return self
        kept = np.flatnonzero(keep)
        offsets = offsets_from(keep)[self.offsets]
        ops = None if self.ops is None else self.ops[kept]
        return Folding(self.values.take(arrow_array(kept)), offsets.astype(np.int64), ops, self.original(kept))

    def valid(self) -> Mask:
        """Which inputs are not null."""
        mask = valid_mask(self.values)
        return np.ones(len(self.values), np.bool_) if mask is None else mask


def steps(offsets: Ints) -> Iterator[tuple[Ints, Ints]]:
    """The first rows of all groups, then the second ones ...: each time the groups that have one, and these rows.

    A left fold over every group takes as many rounds as the longest group has rows.
    """
    sizes = np.diff(offsets)
    # sixteen bits sort by radix, in a fraction of the time
    short = np.minimum(sizes, np.iinfo(np.int16).max).astype(np.int16)
    by_size = np.argsort(-short, kind="stable")
    if len(short) and int(short.max()) == np.iinfo(np.int16).max:
        by_size = np.argsort(-sizes, kind="stable")
    ordered = sizes[by_size]
    for number in range(int(ordered[0]) if len(ordered) else 0):
        groups = by_size[: int(np.searchsorted(-ordered, -number, side="left"))]
        yield groups, offsets[groups] + number


class AggregateFunction(ABC):
    """The aggregate function of one field. Immutable; folds many groups at a time."""

    name: ClassVar[str]
    supports_retract: ClassVar[bool] = False
    remembers: ClassVar[bool] = False
    """Whether :attr:`Accumulators.seen` matters: what comes next depends on more than the accumulator."""

    def __init__(self, kind: DataType, options: FieldOptions) -> None:
        self.type, self.options, self.field = kind, options, options.field
        self.arrow_type = to_arrow(kind)
        self.ignore_retract = options.flag("ignore-retract")

    def fold_ops(
        self, values: pa.Array, offsets: Ints, ops: Operations | None = None, initial: Accumulators | None = None
    ) -> Accumulators:
        """Fold the inputs of each group, in order, onto its initial accumulator (none: null, nothing seen).

        ``values``: inputs of all groups side by side, in the field's Arrow type; group g is ``values[offsets[g]:offsets[g + 1]]``;
        ``ops``: int8 an input, None = all AGG. Raises :class:`GroupError` for a retract or value that the function cannot take.
        """
        folding = self.prepared(values, offsets, ops)
        if initial is None:
            count = len(folding)
            initial = Accumulators(pa.nulls(count, self.arrow_type), np.zeros(count, np.bool_))
        return self._fold(folding, initial)

    def prepared(self, values: pa.Array, offsets: Ints, ops: Operations | None) -> Folding:
        """The inputs that the function is shown. Raises :class:`GroupError` on a retract it does not support."""
        folding = Folding(values, np.asarray(offsets, np.int64), ops, None)
        if ops is None or not ops.any():
            return Folding(values, folding.offsets, None, None)
        hidden = ops == SKIP
        if self.ignore_retract:
            hidden |= ops == RETRACT
        if hidden.any():
            folding = folding.only(~hidden)
        if folding.ops is not None and not folding.ops.any():
            return Folding(folding.values, folding.offsets, None, folding.source)
        if not self.supports_retract and folding.ops is not None and (refused := folding.ops == RETRACT).any():
            group = int(folding.groups[int(np.argmax(refused))])
            raise GroupError(RETRACT_REFUSED, group, str(self.refusal))
        return folding

    @property
    def refusal(self) -> str | None:
        """Why no retract can be folded, and what would allow it; None: they can be, or are ignored."""
        if self.supports_retract or self.ignore_retract:
            return None
        reason = f"aggregate function '{self.name}' of column '{self.field}' does not take back (-U, -D)"
        return f"{reason}; '{self.options.key('ignore-retract')}' = 'true' lets it ignore them"

    def fold_layers(self, values: npt.NDArray[Any], layers: Sequence[Ints]) -> npt.NDArray[Any] | None:
        """Plain aggregation of numbers without nulls: ``layers[k]`` holds the rows of the k-th inputs, of the largest groups first.

        One answer a group of ``layers[0]``; None where the function (or these values) need more care.
        """
        return None

    @abstractmethod
    def _fold(self, folding: Folding, initial: Accumulators) -> Accumulators:
        """:meth:`fold_ops` of inputs that are all shown."""

    # -- what follows from it --------------------------------------------------------------------------------------

    def agg(self, accumulator: pa.Array, value: pa.Array) -> pa.Array:
        """What each pair of an accumulator and an input becomes."""
        return self._pairs(accumulator, value, AGG)

    def agg_reversed(self, accumulator: pa.Array, value: pa.Array) -> pa.Array:
        """What late input makes of each accumulator."""
        return self._pairs(accumulator, value, LATE)

    def retract(self, accumulator: pa.Array, value: pa.Array) -> pa.Array:
        """Each accumulator with the input taken back."""
        return self._pairs(accumulator, value, RETRACT)

    def fold(self, values: pa.Array, group_offsets: Ints, kinds: npt.NDArray[np.int8] | None = None) -> pa.Array:
        """Fold each group from nothing; -U (1) and -D (3) among ``kinds`` retract."""
        ops = None if kinds is None else np.where((np.asarray(kinds) & 1) == 1, RETRACT, AGG).astype(np.int8)
        return self.fold_ops(values, np.asarray(group_offsets, np.int64), ops).values

    def _pairs(self, accumulator: pa.Array, value: pa.Array, op: int) -> pa.Array:
        seen = numpy_array(accumulator.is_valid())
        offsets = np.arange(len(value) + 1, dtype=np.int64)
        ops = np.full(len(value), op, np.int8)
        return self.fold_ops(value, offsets, ops, Accumulators(accumulator, seen)).values


__all__ = [
    "AGG",
    "INVALID",
    "LATE",
    "OVERFLOW",
    "RETRACT",
    "RETRACT_REFUSED",
    "SKIP",
    "Accumulators",
    "AggregateFunction",
    "FieldOptions",
    "Folding",
    "GroupError",
    "Operations",
    "steps",
]
