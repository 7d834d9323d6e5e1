"""Blob files: what is written is read again; references to other files are refused; files roll at their target."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsm_core import Catalog, Schema, Table
from lsm_core.errors import InvalidData, InvalidOption, InvalidSchema, UnsupportedFeature
from lsm_core.files.blob_reader import decode_lengths
from lsm_core.files.blob_writer import BlobFileWriter, encode_lengths
from lsm_core.format.manifest import DataFileMeta, table_to_entries
from lsm_core.metadata import manifests, snapshots

EVOLVED = {"row-tracking.enabled": "true", "data-evolution.enabled": "true", "blob-field": "x, y"}
FIELDS = pa.schema([("k", pa.int32()), ("x", pa.binary()), ("s", pa.string()), ("y", pa.binary())])
DESCRIPTOR = b"\x02" + (0x424C4F4244455343).to_bytes(8, "little") + b"\x00" * 20


def make(tmp_path: Path, **options: str) -> Table:
    catalog = Catalog(tmp_path)
    catalog.create_database("db")
    given_options = {name.replace("__", "-").replace("_", "."): value for name, value in options.items()}
    return catalog.create_table("db.t", Schema(FIELDS, options={**EVOLVED, **given_options}))


def rows_of(first: int, count: int) -> list[dict[str, Any]]:
    values = [None, b"", b"x", bytes(range(256)) * 3]
    return [
        {"k": k, "x": values[k % 4], "s": str(k), "y": None if k % 3 else bytes([k % 256]) * k}
        for k in range(first, first + count)
    ]


def live(table: Table) -> list[DataFileMeta]:
    snapshot = snapshots.latest(table.store)
    assert snapshot is not None
    return [entry.file for entry in table_to_entries(manifests.live_entries(table.store, snapshot))]


@given(st.lists(st.one_of(st.sampled_from([-1, -2, 16]), st.integers(16, 1 << 61)), max_size=40))
def test_lengths_are_decoded_as_they_were_encoded(lengths: list[int]) -> None:
    assert decode_lengths(encode_lengths(np.array(lengths, np.int64)), "f").tolist() == lengths


def test_rows_with_blobs_are_read_as_written(tmp_path: Path) -> None:
    table = make(tmp_path, target__file__row__num="3", blob_target__file__size="500 b")
    table.write(rows_of(0, 10))
    table.write(rows_of(10, 2))
    read = table.to_arrow(["k", "x", "s", "y", "_ROW_ID", "_SEQUENCE_NUMBER"]).to_pylist()
    ids = [(row.pop("_ROW_ID"), row.pop("_SEQUENCE_NUMBER")) for row in read]
    assert read == rows_of(0, 12)
    assert ids == [*((i, 1) for i in range(10)), (10, 2), (11, 2)]
    plain = [file for file in live(table) if not file.file_name.endswith(".blob")]
    assert [(file.first_row_id, file.row_count, file.write_cols) for file in plain] == [
        (first, count, ("k", "s")) for first, count in ((0, 3), (3, 3), (6, 3), (9, 1), (10, 2))
    ]
    blobs = [file for file in live(table) if file.write_cols == ("x",)]
    assert sum(file.row_count for file in blobs) == 12
    assert len(blobs) > len(plain)  # values above the target fill a file
    assert all(check.passed for check in table.check())


def test_values_are_updated_by_files_with_placeholders(tmp_path: Path) -> None:
    table = make(tmp_path)
    table.write(rows_of(0, 6))
    old = {file.file_name for file in live(table)}
    table.update([("k", ">", 3)], {"x": b"new"})
    table.update([("k", "=", 0)], {"y": None, "s": "seen"})
    expected = [
        row | ({"x": b"new"} if row["k"] > 3 else {}) | ({"y": None, "s": "seen"} if row["k"] == 0 else {})
        for row in rows_of(0, 6)
    ]
    assert table.to_arrow().to_pylist() == expected
    added = [(file.write_cols, file.row_count) for file in live(table) if file.file_name not in old]
    assert sorted(added) == [(("s",), 6), (("x",), 6), (("y",), 6)]
    table.compact(full=True)
    assert table.to_arrow().to_pylist() == expected


@pytest.mark.parametrize("value", [DESCRIPTOR, b"\x01" + (0x424C4F4256494557).to_bytes(8, "little") + b"rest"])
def test_references_to_other_files_are_not_written(tmp_path: Path, value: bytes) -> None:
    table = make(tmp_path)
    with pytest.raises(UnsupportedFeature, match="descriptor or view of another file"):
        table.write([{"k": 1, "x": value}])
    assert not [*Path(table.store.root).rglob("bucket-*/*")]
    table.write([{"k": 1, "x": b"BLOBDESC"}])
    assert table.to_arrow(["x"]).to_pylist() == [{"x": b"BLOBDESC"}]


def test_a_full_disk_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = make(tmp_path)

    def full(self: BlobFileWriter) -> None:
        raise OSError("the disk is full")

    monkeypatch.setattr(BlobFileWriter, "_close_file", full)
    with pytest.raises(OSError, match="the disk is full"):
        table.write(rows_of(0, 3))
    assert not [*Path(table.store.root).rglob("bucket-*/*")]


def test_a_null_is_refused_where_the_column_is_not_null(tmp_path: Path) -> None:
    catalog = Catalog(tmp_path)
    catalog.create_database("db")
    fields = [("k", "INT"), ("x", "BLOB NOT NULL")]
    table = catalog.create_table("db.n", Schema(fields, options={**EVOLVED, "blob-field": "x"}))
    table.write([{"k": 1, "x": b"a"}])
    with pytest.raises(InvalidData, match="x"):
        table.write([{"k": 2}])


@pytest.mark.parametrize(
    ("fields", "options", "error"),
    [
        ([("k", "INT"), ("x", "BLOB")], {}, InvalidOption),
        ([("k", "INT"), ("x", "BYTES")], {**EVOLVED, "blob-field": "k"}, InvalidOption),
        ([("x", "BLOB")], {**EVOLVED, "blob-field": "x"}, InvalidSchema),
    ],
)
def test_definitions_that_java_refuses_are_refused(
    tmp_path: Path, fields: list[tuple[str, str]], options: dict[str, str], error: type[Exception]
) -> None:
    catalog = Catalog(tmp_path)
    catalog.create_database("db")
    with pytest.raises(error):
        catalog.create_table("db.t", Schema(fields, options=options))
