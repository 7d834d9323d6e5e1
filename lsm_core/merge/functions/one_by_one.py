"""Functions whose accumulators are bytes of a library's own: groups with two or more inputs are folded one by one.

Everything else stays columnar: a group with one input, or none, is answered by row index, and its bytes are not even read.
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


class OneByOne(AggregateFunction):
    """A union of binary values; null says nothing, and a lone value stays as it is, byte for byte."""

    def __init__(self, kind: DataType, options: FieldOptions) -> None:
        super().__init__(kind, options)
        if kind.root is not TypeRoot.VARBINARY:
            value = f"{self.name} on type {kind}"
            raise InvalidOption(options.key("aggregate-function"), value, f"{self.name} for VARBINARY", options.table)

    def _fold(self, folding: Folding, initial: Accumulators) -> Accumulators:
        seen = initial.seen | (folding.sizes > 0)
        given = folding.only(folding.valid())
        before = valid_mask(initial.values)
        begun = np.ones(len(folding), np.bool_) if before is None else before
        alone = given.sizes + begun > 1
        count = len(given.values)
        index = np.where(begun, count + np.arange(len(folding)), -1)
        fresh = ~begun & (given.sizes == 1)
        index[fresh] = given.offsets[:-1][fresh]
        groups = np.flatnonzero(alone)
        index[groups] = count + len(folding) + np.arange(len(groups))
        made = pa.array([self._one(given, initial.values, bool(begun[g]), int(g)) for g in groups], self.arrow_type)
        whole = pa.concat_arrays([given.values, initial.values, made])
        return Accumulators(whole.take(pa.array(index, mask=index < 0)), seen, alone)

    def _one(self, given: Folding, initial: pa.Array, begun: bool, group: int) -> bytes:
        """All inputs of one group, in order. Raises GroupError for bytes that are not what the function takes."""
        total = self._read(initial[group].as_py(), group) if begun else None
        for row in range(int(given.offsets[group]), int(given.offsets[group + 1])):
            value = self._read(given.values[row].as_py(), group)
            late = given.ops is not None and given.ops[row] == LATE
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
        """The first of ``values`` (nulls aside) that cannot be merged, and why; None: all can be."""
        for value in values.drop_null():
            try:
                self._read(value.as_py(), 0)
            except GroupError as error:
                return value, error.reason
        return None

    @abstractmethod
    def _decode(self, data: bytes) -> Any:
        """What a value stands for. Raises CorruptFile."""

    @abstractmethod
    def _join(self, total: Any, value: Any) -> Any:
        """The union of what came so far and an input."""

    @abstractmethod
    def _write(self, total: Any) -> bytes:
        """A value as Java writes it."""


__all__ = ["OneByOne"]
