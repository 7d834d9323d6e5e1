"""What a suite looks at: merged rows of a table, bounded in rows, only the columns the suite needs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from lsm_core import Table

if TYPE_CHECKING:
    import pandas as pd

MAX_ROWS: Final = 500_000


@dataclass(frozen=True)
class Sample:
    """A pandas frame and whether it holds the whole table."""

    frame: pd.DataFrame
    whole: bool


def wanted_columns(table: Table) -> list[str]:
    """Return the columns that a suite can say something about: keys and NOT NULL columns."""
    schema = table.store.schema
    keys = set(schema.primary_keys)
    return [column.name for column in schema.fields if column.name in keys or not column.type.nullable] or [
        schema.fields[0].name
    ]


def read_sample(table: Table, max_rows: int = MAX_ROWS) -> Sample:
    """Read up to ``max_rows`` merged rows. Keys of one bucket are never in another, so a cut sample still shows duplicates."""
    columns = wanted_columns(table)
    batches: list[pa.RecordBatch] = []
    rows = 0
    for batch in table.to_batches(columns=columns):
        batches.append(batch)
        rows += batch.num_rows
        if rows >= max_rows:
            break
    schema = pa.schema([table.store.schema.arrow_schema.field(name) for name in columns])
    whole = rows < max_rows
    return Sample(pa.Table.from_batches(batches, schema=schema).slice(0, max_rows).to_pandas(), whole)
