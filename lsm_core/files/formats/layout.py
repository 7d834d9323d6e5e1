"""Columns of a data file whose format does not store them (`row`, `csv`, `json`, `text`)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa

from lsm_core.options import TableOptions
from lsm_core.types import DataType


@dataclass(frozen=True)
class FileLayout:
    """Columns of a file in stored order, as its table's metadata defines them.

    Attributes:
        schema: stored names, and the Arrow types of the values that the file's source returns.
        types: logical types of the columns.
        options: options of the table, of which a format reads its own.
    """

    schema: pa.Schema
    types: tuple[DataType, ...]
    options: TableOptions


LayoutOf = Callable[[], FileLayout]
"""Function that returns the layout of a file; it is called only for formats that need it."""
