"""Java reads the files of a table that lives in an object store: its bundle has no S3, so they are copied to a folder for it, and its own back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lsm_core import Catalog, Schema
from lsm_core.storage import FileIO
from tests.support.s3_server import S3Server

pytestmark = pytest.mark.paimon_java

FIELDS = pa.schema([pa.field("k", pa.int64(), nullable=False), ("v", pa.string())])


def _files(io: FileIO, folder: str) -> list[str]:
    return [
        path for status in io.list_dir(folder) for path in (_files(io, status.path) if status.is_dir else [status.path])
    ]


def test_java_and_dredge_take_turns_on_a_table_that_moves_between_store_and_folder(
    s3: S3Server, java_session: Any, tmp_path: Path
) -> None:
    house = Catalog(f"{s3.bucket()}/house", s3.options)
    house.create_database("db")
    table = house.create_table("db.t", Schema(FIELDS, primary_keys=["k"], options={"bucket": "2"}))
    for start in (0, 5):
        table.write(pa.table([list(range(start, start + 10)), [f"{start}-{i}" for i in range(10)]], schema=FIELDS))
    table.compact(full=True)
    root, copy = table.store.root, tmp_path / "db.db" / "t"
    for path in _files(house.file_io, root):
        target = copy / path.removeprefix(f"{root}/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(house.file_io.read_bytes(path))
    place = {"warehouse": str(tmp_path), "table": "db.t"}
    found = java_session.call("read", **place)["rows"]
    assert sorted((row["k"], row["v"]) for row in found) == sorted(
        map(tuple, zip(*table.to_arrow().to_pydict().values(), strict=True))
    )
    java_session.call("write", rows=[{"k": 3, "v": "java"}], **place)
    for path in (path for path in copy.rglob("*") if path.is_file()):
        house.file_io.overwrite(f"{root}/{path.relative_to(copy)}", path.read_bytes())
    changed = {row["k"]: row["v"] for row in house.table("db.t").to_arrow().to_pylist()}
    assert (len(changed), changed[3], changed[14]) == (15, "java", "5-9")
