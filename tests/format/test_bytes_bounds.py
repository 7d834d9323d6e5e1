"""Bounds of BINARY columns in statistics, which Paimon writes since 2.0."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from lsm_core import Catalog, Schema
from lsm_core.format.binary_row import decode_row

FIELDS = pa.schema([("b", pa.binary()), ("k", pa.int32())])


def _bounds(place: Path, values: list[bytes | None], **options: str) -> tuple[bytes | None, bytes | None]:
    catalog = Catalog(place)
    catalog.create_database("db")
    table = catalog.create_table("db.t", Schema(FIELDS, options={"bucket": "-1", **options}))
    table.write(pa.table({"b": values, "k": list(range(len(values)))}, schema=FIELDS))
    assert table.to_arrow(filter="k = 1").num_rows == 1
    for value in {*values} - {None}:
        assert table.to_arrow(filter=pc.field("b") == value).num_rows == values.count(value)
    (split,) = table.plan_scan()
    stats, kinds = split.files[0].value_stats, [field.type for field in table.schema.fields]
    return decode_row(stats.min_values, kinds)[0], decode_row(stats.max_values, kinds)[0]


@pytest.mark.parametrize("file_format", ["parquet", "avro"])
@pytest.mark.parametrize(
    ("values", "bounds"),
    [
        ([b"b", None, b"\x80", b""], (b"", b"\x80")),
        ([b"a" * 20, b"b" * 20], (b"a" * 16, b"b" * 15 + b"c")),
        ([b"a", b"b" + b"\xff" * 20], (b"a", b"c")),
        ([b"a", b"\xff" * 20], (None, None)),
        ([None, None], (None, None)),
    ],
)
def test_bounds_are_cut_as_by_java(
    tmp_path: Path, file_format: str, values: list[bytes | None], bounds: tuple[bytes | None, bytes | None]
) -> None:
    options = {"dredge.paimon-version": "2.0", "file.format": file_format}
    assert _bounds(tmp_path, values, **options) == bounds


def test_tables_of_older_versions_have_none(tmp_path: Path) -> None:
    assert _bounds(tmp_path, [b"a", b"b"], **{"dredge.paimon-version": "1.4"}) == (None, None)
