"""What is wanted of changed rows: the columns, and the filter that each row is judged by on its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
import pyarrow as pa

from lsm_core.format.kv_layout import VALUE_KIND
from lsm_core.metadata.store import TableStore
from lsm_core.read.predicate import Predicate, parse_filter
from lsm_core.read.scan import chosen_columns
from lsm_core.types import kinds_to_text

ROW_KIND: Final = "_ROW_KIND"
"""First column of changed rows: `+I`, `-U`, `+U` or `-D`."""
_KIND_FIELD: Final = pa.field(VALUE_KIND, pa.int8(), nullable=False)


@dataclass(frozen=True)
class Choice:
    """The columns asked for, in output order, and the filter; ``store`` is the table as of the schema rows are read with."""

    store: TableStore
    columns: tuple[str, ...]
    predicate: Predicate | None = None

    @staticmethod
    def of(store: TableStore, columns: Sequence[str] | None = None, filter: object = None) -> Choice:  # noqa: A002
        """Raises ColumnNotFound, InvalidFilter."""
        return Choice(store, chosen_columns(store, columns), parse_filter(filter, store.schema, store.name))

    @cached_property
    def needed(self) -> tuple[str, ...]:
        """Columns to read: those asked for, and those that the filter looks at."""
        if self.predicate is None:
            return self.columns
        if self.predicate.by_position:
            return self.store.schema.field_names
        return (*self.columns, *(name for name in self.predicate.columns if name not in self.columns))

    @cached_property
    def schema(self) -> pa.Schema:
        """Schema of kept batches: the row kind as a number (`_VALUE_KIND`), then the columns."""
        return pa.schema([_KIND_FIELD, *(self.store.schema.arrow_schema.field(name) for name in self.columns)])

    @cached_property
    def text_schema(self) -> pa.Schema:
        """Schema of rows as callers get them: `_ROW_KIND` as text, then the columns."""
        kind = pa.field(ROW_KIND, pa.string(), nullable=False)
        return pa.schema([kind, *(self.store.schema.arrow_schema.field(name) for name in self.columns)])

    def keep(self, batch: pa.RecordBatch, kinds: pa.Array | int) -> pa.RecordBatch:
        """The rows of ``batch`` (it holds :attr:`needed`) that pass the filter, as :attr:`schema` tells.

        ``kinds``: one number a row, or the one of all rows.
        """
        if isinstance(kinds, int):
            kinds = pa.array(np.full(batch.num_rows, kinds, np.int8))
        arrays = [*(batch.column(name) for name in self.needed), kinds]
        whole = pa.RecordBatch.from_arrays(arrays, names=[*self.needed, VALUE_KIND])
        if self.predicate is not None:
            whole = self.predicate.apply(whole)
        arrays = [whole.column(whole.num_columns - 1), *(whole.column(name) for name in self.columns)]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def told(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """A kept batch with its kinds as text, as :attr:`text_schema` tells."""
        arrays = [kinds_to_text(batch.column(0)), *batch.columns[1:]]
        return pa.RecordBatch.from_arrays(arrays, schema=self.text_schema)


__all__ = ["ROW_KIND", "Choice"]
