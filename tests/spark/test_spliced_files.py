"""Spark's own Parquet reader reads files of copied row groups, with and without a filter that skips row groups."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from lsm_core.spark import read_table
from tests.interop.rows import ALL_TYPES, canonical
from tests.interop.test_spliced_files import WRITERS, paths_of, spliced_table


@pytest.mark.soak
@pytest.mark.spark
@pytest.mark.parametrize("keyed", [True, False], ids=["key-value", "append"])
@pytest.mark.parametrize("writer", WRITERS)
def test_spark_reads_spliced_files(tmp_path: Path, spark: Any, writer: str, keyed: bool) -> None:
    table, rows = spliced_table(tmp_path, WRITERS[writer], keyed=keyed)
    bound = pc.quantile(rows["id"], 0.7, interpolation="lower")[0].as_py()
    for expected, condition in ((rows, "true"), (rows.filter(pc.field("id") >= bound), f"id >= {bound}")):
        canonical_rows = canonical(expected, ALL_TYPES.names)
        ours = read_table(spark, table).where(condition).toArrow()
        assert canonical(ours, ALL_TYPES.names) == canonical_rows
        (path,) = paths_of(table)
        stored = spark.read.parquet(path).where(condition).select(*ALL_TYPES.names).toArrow()
        assert canonical(stored.cast(pa.schema(ALL_TYPES)), ALL_TYPES.names) == canonical_rows
