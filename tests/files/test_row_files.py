"""Row files: values of every shape from a file of Java, damage, and bounds of what is decoded at a time."""

from __future__ import annotations

import base64
from datetime import datetime
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from lsm_core.errors import CorruptFile, DredgeError
from lsm_core.files.formats import FileLayout, open_source
from lsm_core.files.formats.protocol import FileSource
from lsm_core.format.schema import append_arrow_schema
from lsm_core.metadata.store import TableStore
from lsm_core.storage import LocalFileIO
from tests.support.stores import make_store

# Written by Java Paimon 2.0.0 with 'file.block-size' = '64 b': two blocks.
STORED = base64.b64decode(
    "KLUv/QBINQIAIgQPHLA1rQFc0AKnQJckgUkg+ktCR5VS+q0I8b1yyxS/L1cmDDIomoPwEAHBdL/hyrk1yVqAqbsKRrQUZLcBAgABU17gCyi1L/0A"
    "SNkAACYEAAAAAOhmXm8BAADoBwEAAXEAAAAAAQAAAAOeAVUDmgFjAgAGBAAAAAAAAAACAAAAcwAAAAAAAAALAAAAAQAAAFNXT1I="
)
COLUMNS = {
    "k": "INT NOT NULL",
    "s": "STRING",
    "d": "DECIMAL(30,2)",
    "t": "TIMESTAMP(6)",
    "a": "ARRAY<STRING>",
    "m": "MAP<STRING, INT>",
}
ROWS = [
    {
        "k": 1,
        "s": "a",
        "d": Decimal("-1.50"),
        "t": datetime(1969, 12, 31, 23, 59, 59, 500_000),
        "a": ["x", None, ""],
        "m": [("p", 1)],
    },
    {"k": 2, "s": None, "d": None, "t": None, "a": None, "m": None},
    {"k": 3, "s": "wü", "d": Decimal("12345678901234567890.25"), "t": None, "a": [], "m": []},
    {"k": 4, "s": None, "d": None, "t": datetime(2020, 1, 1, 0, 0, 0, 1), "a": ["q"], "m": None},
]


@pytest.fixture
def store(tmp_path: Path) -> TableStore:
    return make_store(tmp_path / "t", COLUMNS, primary_keys=())


def _open(store: TableStore, path: Path, data: bytes = STORED, rows: int | None = 4) -> FileSource:
    path.write_bytes(data)
    kinds = tuple(field.type for field in store.schema.fields)
    layout = FileLayout(append_arrow_schema(store.schema), kinds, store.options)
    return open_source(LocalFileIO(), str(path), size=len(data), rows=rows, layout=lambda: layout)


def test_values_and_projections(store: TableStore, tmp_path: Path) -> None:
    source = _open(store, tmp_path / "x.row", rows=None)
    assert (source.rows, source.group_rows) == (4, [4])
    assert pa.Table.from_batches(source.batches(list(COLUMNS), 100)).to_pylist() == ROWS
    for columns in (["m"], ["a", "k"], ["d"], ["t", "s"]):
        for batch_rows in (1, 2, 3):
            batches = list(source.batches(columns, batch_rows))
            assert max(batch.num_rows for batch in batches) <= batch_rows
            assert pa.Table.from_batches(batches).to_pylist() == [{name: row[name] for name in columns} for row in ROWS]
    assert [batch.num_rows for batch in source.batches([], 100)] == [4]
    assert list(source.batches(["k"], 100, [])) == []
    source.close()


def test_every_damaged_byte_is_an_error_or_another_value(store: TableStore, tmp_path: Path) -> None:
    """Row files have no checksums, so a damaged value may remain a value; nothing else than our errors is raised."""
    errors = 0
    for place in range(len(STORED)):
        for flip in (0xFF, 0x01, 0x80):
            damaged = bytearray(STORED)
            damaged[place] ^= flip
            try:
                source = _open(store, tmp_path / "x.row", bytes(damaged))
                rows = sum(batch.num_rows for batch in source.batches(list(COLUMNS), 100))
                assert rows == 4
            except DredgeError:
                errors += 1
    assert errors > 1.5 * len(STORED)


def test_files_that_are_cut_or_empty_are_corrupt(store: TableStore, tmp_path: Path) -> None:
    for length in (0, 5, 31, 32, 100, len(STORED) - 1):
        with pytest.raises(CorruptFile, match=r"x\.row"):
            _open(store, tmp_path / "x.row", STORED[:length])


def test_columns_of_other_types_are_an_error(tmp_path: Path) -> None:
    other = make_store(tmp_path / "t", {**COLUMNS, "s": "BIGINT"}, primary_keys=())
    with pytest.raises(CorruptFile):
        list(_open(other, tmp_path / "x.row").batches(["k"], 100))


def test_a_forged_decompressed_size_is_refused(store: TableStore, tmp_path: Path) -> None:
    index = STORED.index(bytes([3, 0x9E, 0x01]))
    forged = bytearray(STORED)
    start = STORED.index(bytes([3, 0x9A, 0x01]), index)
    forged[start + 1 : start + 4] = np.array([0xFE, 0xFF, 0x7F], np.uint8).tobytes()
    with pytest.raises(CorruptFile, match=r"x.row"):
        list(_open(store, tmp_path / "x.row", bytes(forged)).batches(["k"], 100))
