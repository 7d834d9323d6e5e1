"""Descriptors in BLOB columns are untrusted: only files of the table and of allowed folders are opened."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lsm_core import Catalog, Schema, Table
from lsm_core.errors import CorruptFile, UnsupportedFeature
from lsm_core.files import blob_descriptors
from lsm_core.files.blob_descriptors import BlobDescriptor
from lsm_core.options import ALLOWED_PLACES

FIELDS = pa.schema([("k", pa.int32()), ("x", pa.binary())])
OPTIONS = {"row-tracking.enabled": "true", "data-evolution.enabled": "true"}
CONTENT = b"0123456789"


def descriptor(uri: str, offset: int = 0, length: int = -1, version: int = 2) -> bytes:
    """Return a descriptor as Java serializes it."""
    magic = (0x424C4F4244455343).to_bytes(8, "little") if version > 1 else b""
    numbers = offset.to_bytes(8, "little", signed=True) + length.to_bytes(8, "little", signed=True)
    return bytes([version]) + magic + len(uri.encode()).to_bytes(4, "little") + uri.encode() + numbers


def make(tmp_path: Path, values: list[bytes | None]) -> Table:
    """Return a table as Java writes it: descriptors are inline values of a BLOB column of `blob-descriptor-field`."""
    catalog = Catalog(tmp_path / "warehouse")
    catalog.create_database("db")
    table = catalog.create_table("db.t", Schema(FIELDS, options=OPTIONS))
    table.write(pa.table({"k": pa.array(range(len(values)), pa.int32()), "x": pa.array(values, pa.binary())}))
    path = Path(table.store.root) / "schema" / "schema-0"
    schema = json.loads(path.read_text())
    schema["fields"][1]["type"] = "BLOB"
    schema["options"] |= {"blob-field": "x", "blob-descriptor-field": "x"}
    path.write_text(json.dumps(schema))
    return Catalog(tmp_path / "warehouse").table("db.t")


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    (tmp_path / "media").mkdir()
    (tmp_path / "media" / "a.bin").write_bytes(CONTENT)
    return tmp_path / "media" / "a.bin"


def values_of(table: Table, **options: Any) -> list[bytes | None]:
    return list(table.to_arrow(["x"], **options).column("x").to_pylist())


def test_values_are_read_from_allowed_folders(tmp_path: Path, outside: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stored = [
        descriptor(str(outside), 2, 3),
        None,
        descriptor(f"file:{outside}"),
        descriptor(f"file://{outside}", 9, 1, version=1),
        descriptor(str(outside), 10, 0),
    ]
    table = make(tmp_path, stored)
    with pytest.raises(UnsupportedFeature, match=ALLOWED_PLACES):
        table.to_arrow()
    assert table.to_arrow(["k"]).num_rows == 5
    assert values_of(table.copy({"blob-as-descriptor": "true"})) == stored
    monkeypatch.setenv(ALLOWED_PLACES, str(outside.parent))
    monkeypatch.setattr(blob_descriptors, "_BATCH_BYTES", 4)
    expected = [CONTENT[2:5], None, CONTENT, CONTENT[9:], b""]
    assert values_of(table) == expected
    assert values_of(table, filter=[("k", "=", 2)]) == [CONTENT]


def test_a_compaction_keeps_descriptors_and_opens_nothing(
    tmp_path: Path, outside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make(tmp_path, [descriptor(str(outside), 1, 2), None])
    monkeypatch.setattr(blob_descriptors._Sources, "read", lambda *_: pytest.fail("a descriptor was followed"))
    with pytest.raises(UnsupportedFeature, match="blob-descriptor-field"):
        table.write([{"k": 7, "x": b"value"}])
    assert table.compact(full=True).failed == ()
    assert values_of(table.copy({"blob-as-descriptor": "true"})) == [descriptor(str(outside), 1, 2), None]


@pytest.mark.parametrize(
    "form", ["{folder}/../secret", "{folder}/link/secret", "/etc/passwd", "http://h/x", "s3://", "relative"]
)
def test_files_elsewhere_are_not_opened(
    tmp_path: Path, outside: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    (tmp_path / "secret").write_bytes(b"secret")
    (outside.parent / "link").symlink_to(tmp_path)
    monkeypatch.setenv(ALLOWED_PLACES, str(outside.parent))
    table = make(tmp_path, [descriptor(form.format(folder=outside.parent))])
    with pytest.raises(UnsupportedFeature, match="does not allow"):
        table.to_arrow()


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"", "no descriptor"),
        (b"plain bytes", "no descriptor"),
        (descriptor("f")[:-1], "no descriptor"),
        (b"\x03" + descriptor("f")[1:], "no descriptor"),
        (descriptor("f", -1), "before the start"),
        (descriptor("f", 0, -2), "before the start"),
        (b"\x01\x02\x00\x00\x00\xff\xfe" + bytes(16), "no text"),
    ],
)
def test_damaged_descriptors_are_reported(value: bytes, reason: str) -> None:
    with pytest.raises(CorruptFile, match=reason):
        BlobDescriptor.of(value, "x")


@pytest.mark.parametrize(("offset", "length"), [(0, 11), (11, -1), (5, 6), (1 << 62, 1)])
def test_bytes_behind_the_end_are_reported(
    tmp_path: Path, outside: Path, monkeypatch: pytest.MonkeyPatch, offset: int, length: int
) -> None:
    monkeypatch.setenv(ALLOWED_PLACES, str(outside.parent))
    with pytest.raises(CorruptFile, match=r"a\.bin"):
        make(tmp_path, [descriptor(str(outside), offset, length)]).to_arrow()


def test_a_missing_file_is_named(tmp_path: Path, outside: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ALLOWED_PLACES, str(outside.parent))
    with pytest.raises(CorruptFile, match=r"gone\.bin"):
        make(tmp_path, [descriptor(str(outside.parent / "gone.bin"))]).to_arrow()
