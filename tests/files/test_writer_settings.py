"""Settings of the writers of data files: `parquet.*` and `orc.*`."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lsm_core import Catalog, Schema
from lsm_core.errors import InvalidOption

ROWS = 30_000


def _written(root: Path, name: str, **options: str) -> Path:
    catalog = Catalog(str(root))
    catalog.create_database("db", ignore_if_exists=True)
    fields = pa.schema([("n", pa.int64()), ("text", pa.string())])
    table = catalog.create_table(f"db.{name}", Schema(fields, [], [], {"bucket": "-1", **options}))
    repeated = [f"value {number % 997} of the dictionary" for number in range(ROWS)]
    rows = pa.table({"n": range(ROWS), "text": repeated}, schema=fields)
    table.write(rows, compact=False)
    assert table.refresh().to_arrow().sort_by("n").equals(rows)
    (path,) = (root / "db.db" / name).glob("bucket-*/*")
    return path


def _has_dictionary(path: Path) -> bool:
    return bool(pq.ParquetFile(path).metadata.row_group(0).column(1).has_dictionary_page)


def test_pages_of_parquet_hold_the_rows_of_the_option(tmp_path: Path) -> None:
    plain = _written(tmp_path, "plain")
    short = _written(tmp_path, "short", **{"parquet.page.row.count.limit": "100"})
    assert short.stat().st_size > 1.5 * plain.stat().st_size  # 300 pages with their headers instead of a few
    for value in ("0", "many"):
        with pytest.raises(InvalidOption, match=r"parquet\.page\.row\.count\.limit"):
            _written(tmp_path, "bad", **{"parquet.page.row.count.limit": value})


def test_a_small_dictionary_ends_early(tmp_path: Path) -> None:
    plain = _written(tmp_path, "plain")
    small = _written(tmp_path, "small", **{"parquet.dictionary.page.size": "1 kb"})

    def encoded(path: Path) -> int:
        return int(pq.ParquetFile(path).metadata.row_group(0).column(1).total_uncompressed_size)

    assert _has_dictionary(plain)
    assert encoded(small) > 3 * encoded(plain)


def test_the_index_of_orc_has_an_entry_per_stride(tmp_path: Path) -> None:
    plain = _written(tmp_path, "plain", **{"file.format": "orc", "file.compression": "none"})
    dense = _written(
        tmp_path, "dense", **{"file.format": "orc", "file.compression": "none", "orc.row.index.stride": "1000"}
    )
    from pyarrow import orc

    assert (orc.ORCFile(str(plain)).row_index_stride, orc.ORCFile(str(dense)).row_index_stride) == (10_000, 1_000)
