"""Rows of a table in a DataFrame, compared with those that readers must see without gathering them on the driver."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from lsm_core.maintenance.checks.row_comparison import COUNT_COLUMN, require_columns
from lsm_core.metadata.store import TableStore
from lsm_core.spark.spark_columns import quoted
from lsm_core.spark.spark_tasks import translated

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_TITLE: Final = "comparing rows of table {}"


class SparkRows:
    """Rows in a DataFrame (implements `ReadRows`); only rows of sampled keys and repeated keys reach the driver.

    Args:
        store: the table that they were read from.
        frame: the rows.
    """

    nan_is_null: Collection[str] = ()

    def __init__(self, store: TableStore, frame: DataFrame) -> None:
        self._store, self._frame = store, frame

    def with_keys(self, keys: pa.Table, columns: Sequence[str]) -> pa.Table:
        """See ReadRows. Raises InvalidData for a column that the frame lacks, SparkFailed."""
        require_columns(self._store, self._frame.columns, columns)
        names = list(self._store.schema.primary_keys)
        with translated(_TITLE.format(self._store.name)):
            session: Any = self._frame.sparkSession
            wanted = session.createDataFrame(keys).hint("broadcast")
            rows = self._frame.join(wanted, names, "left_semi").select(*map(quoted, columns)).toArrow()
            return self._as_table_types(rows)

    def repeated_keys(self, limit: int) -> tuple[int, int, pa.Table]:
        """See ReadRows. Raises InvalidData for a key column that the frame lacks, SparkFailed."""
        names = list(self._store.schema.primary_keys)
        require_columns(self._store, self._frame.columns, names)
        with translated(_TITLE.format(self._store.name)):
            counted = self._frame.groupBy(*map(quoted, names)).count().withColumnRenamed("count", COUNT_COLUMN)
            column = quoted(COUNT_COLUMN)
            sums = counted.selectExpr(f"coalesce(sum({column}), 0)", f"count_if({column} > 1)").toArrow()
            rows, repeated = (int(value[0].as_py()) for value in sums.columns)
            shown = counted.where(f"{column} > 1").limit(limit if repeated else 0)
            return rows, repeated, self._as_table_types(shown.toArrow())

    def _as_table_types(self, rows: pa.Table) -> pa.Table:
        """Return rows with the Arrow types of the table's columns."""
        own = self._store.schema.arrow_schema
        fields = [own.field(name) if name in own.names else rows.schema.field(name) for name in rows.column_names]
        return rows.cast(pa.schema([field.with_nullable(nullable=True) for field in fields]))
