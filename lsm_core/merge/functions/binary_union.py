"""Aggregate functions of bitmaps and sketches, which a library stores as bytes and which are folded group by group.

Only groups with two or more inputs are folded. For a group with fewer inputs the result is a row number, and no bytes
are read.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np
import pyarrow as pa

from lsm_core.arrays import valid_mask
from lsm_core.errors import CorruptFile, InvalidOption
from lsm_core.merge.functions.base import (
    INVALID,
    LATE,
    Accumulators,
    AggregateFunction,
    FieldOptions,
    Folding,
    GroupError,
)
from lsm_core.types import DataType, TypeRoot


class BinaryUnion(AggregateFunction):
    """Function whose result is the union of bitmaps or sketches, stored as bytes.

    Null inputs are ignored. The only input of a key is returned unchanged, byte for byte.
    """

    def __init__(self, kind: DataType, options: FieldOptions) -> None:
        super().__init__(kind, options)
        if kind.root is not TypeRoot.VARBINARY:
            value = f"{self.name} on type {kind}"
            raise InvalidOption(options.key("aggregate-function"), value, f"{self.name} for VARBINARY", options.table)

    def _fold(self, folding: Folding, initial: Accumulators) -> Accumulators:
        seen = initial.seen | (folding.sizes > 0)
        inputs = folding.only(folding.valid())
        before = valid_mask(initial.values)
        is_set = np.ones(len(folding), np.bool_) if before is None else before
        alone = inputs.sizes + is_set > 1
        count = len(inputs.values)
        index = np.where(is_set, count + np.arange(len(folding)), -1)
        is_single = ~is_set & (inputs.sizes == 1)
        index[is_single] = inputs.offsets[:-1][is_single]
        groups = np.flatnonzero(alone)
        index[groups] = count + len(folding) + np.arange(len(groups))
        merged = pa.array(
            [self._fold_group(inputs, initial.values, bool(is_set[g]), int(g)) for g in groups], self.arrow_type
        )
        whole = pa.concat_arrays([inputs.values, initial.values, merged])
        return Accumulators(whole.take(pa.array(index, mask=index < 0)), seen, alone)

    def _fold_group(self, inputs: Folding, initial: pa.Array, has_initial: bool, group: int) -> bytes:
        """Fold all inputs of one group, in order, and return the result in Java's layout.

        Args:
            inputs: inputs of all groups.
            initial: initial accumulator of each group.
            has_initial: whether the group's initial accumulator is not null.
            group: number of the group.

        Raises:
            GroupError: the function cannot read the bytes of a value.
        """
        total = self._read(initial[group].as_py(), group) if has_initial else None
        for row in range(int(inputs.offsets[group]), int(inputs.offsets[group + 1])):
            value = self._read(inputs.values[row].as_py(), group)
            late = inputs.ops is not None and inputs.ops[row] == LATE
            first, second = (value, total) if late else (total, value)
            total = value if total is None else self._join(first, second)
        return self._write(total)

    def _read(self, data: bytes, group: int) -> Any:
        try:
            return self._decode(data)
        except CorruptFile as error:
            reason = f"{self.name} of column '{self.field}' cannot read a value of {len(data)} bytes: {error.reason}"
            raise GroupError(INVALID, group, reason) from error

    def unreadable(self, values: pa.Array) -> tuple[pa.Scalar, str] | None:
        """Find the first value that cannot be decoded and so not be merged; nulls are skipped.

        Returns:
            The value and the reason, or None if all values can be decoded.
        """
        for value in values.drop_null():
            try:
                self._read(value.as_py(), 0)
            except GroupError as error:
                return value, error.reason
        return None

    @abstractmethod
    def _decode(self, data: bytes) -> Any:
        """Decode a value; raise CorruptFile if it is damaged."""

    @abstractmethod
    def _join(self, total: Any, value: Any) -> Any:
        """Return the union of the previous inputs and one input."""

    @abstractmethod
    def _write(self, total: Any) -> bytes:
        """Return a bitmap or sketch as bytes in Java's layout."""
