"""Footers state no bounds of columns with NaN, which Java's readers count as the largest value."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from lsm_core import Catalog

NAN = float("nan")
SCHEMA = pa.schema(
    [
        pa.field("k", pa.int64(), nullable=False),
        pa.field("x", pa.float64()),
        pa.field("y", pa.float32()),
        pa.field("l", pa.list_(pa.float64())),
    ]
)


def test_a_column_with_nan_has_no_bounds_and_others_have(tmp_path: Path) -> None:
    catalog = Catalog(str(tmp_path))
    catalog.create_database("db")
    table = catalog.create_table("db.t", SCHEMA, primary_keys=["k"], options={"bucket": "1", "write-only": "true"})
    count = 30_000
    values = [NAN if at == 7 else float(at) for at in range(count)]
    rows = pa.table([range(count), values, [1.5, None] * (count // 2), [[NAN]] * count], schema=SCHEMA)
    table.write(rows)
    (path,) = Path(table.store.root).glob("bucket-0/*.parquet")
    group = pq.read_metadata(path).row_group(0)
    columns = {group.column(at).path_in_schema: group.column(at) for at in range(group.num_columns)}
    for name in ("x", "l.list.element"):
        assert not columns[name].statistics.has_min_max
        assert columns[name].statistics.null_count == 0
        assert not columns[name].has_column_index
        assert columns[name].has_offset_index
    assert (columns["y"].statistics.min, columns["y"].statistics.max) == (1.5, 1.5)
    assert columns["y"].has_column_index
    read = table.to_arrow()
    assert repr(read.sort_by("k").to_pydict()) == repr(rows.to_pydict())
    assert all(check.passed for check in table.check(deep=True))
