"""`snapshot.clean-empty-directories`: the deletion of files deletes the bucket and partition folders that become empty."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pytest

from lsm_core import Catalog, Schema, Table

FIELDS = pa.schema(
    [pa.field("dt", pa.string(), nullable=False), pa.field("h", pa.int32(), nullable=False), ("v", pa.int64())]
)
CLEANS = {"snapshot.clean-empty-directories": "true"}


def _create(root: Path, **options: str) -> Table:
    catalog = Catalog(str(root))
    catalog.create_database("db")
    return catalog.create_table(
        "db.t", Schema(FIELDS, [], ["dt", "h"], {"bucket": "-1", "dredge.delete-mode": "direct", **options})
    )


def _write(table: Table, dt: str, h: int) -> None:
    table.refresh().write(pa.table({"dt": [dt], "h": pa.array([h], pa.int32()), "v": [1]}), compact=False)


def _folders(table: Table) -> set[str]:
    root = table.store.root
    return {
        os.path.relpath(path, root)
        for path, _, _ in os.walk(root)
        if "=" in path or "bucket-" in path
    }  # fmt: skip


def _drop(table: Table, **partition: object) -> None:
    table = table.refresh()
    table.apply(table.plan_maintenance("drop_partitions", partitions=[partition]))
    table.refresh().expire_snapshots(retain_max=1, retain_min=1, older_than_ms=2**62)


def test_folders_of_dropped_partitions_go_with_their_files(tmp_path: Path) -> None:
    table = _create(tmp_path, **CLEANS)
    for dt, h in (("a", 1), ("a", 2), ("b", 1)):
        _write(table, dt, h)
    (tmp_path / "db.db/t/dt=b/h=1/note.txt").write_text("somebody else's file")
    _drop(table, dt="a", h=1)
    kept = {"dt=a", "dt=a/h=2", "dt=a/h=2/bucket-0", "dt=b", "dt=b/h=1", "dt=b/h=1/bucket-0"}
    assert _folders(table) == kept
    _drop(table, dt="a", h=2)
    _drop(table, dt="b", h=1)
    assert _folders(table) == {"dt=b", "dt=b/h=1"}
    assert {"manifest", "schema", "snapshot"} <= set(os.listdir(table.store.root))
    _write(table, "a", 1)
    assert table.refresh().to_arrow().num_rows == 1


@pytest.mark.parametrize("mode", ["direct", "two-phase"])
def test_without_the_option_and_before_the_sweep_folders_stay(tmp_path: Path, mode: str) -> None:
    options = {} if mode == "direct" else CLEANS
    table = _create(tmp_path, **{**options, "dredge.delete-mode": mode})
    _write(table, "a", 1)
    _write(table, "b", 1)
    _drop(table, dt="a", h=1)
    assert "dt=a/h=1/bucket-0" in _folders(table)


def test_a_linked_folder_stays(tmp_path: Path) -> None:
    table = _create(tmp_path, **CLEANS)
    io = table.store.file_io
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    assert not io.delete_empty_dir(str(tmp_path / "link"))
    assert not io.delete_empty_dir(str(tmp_path / "missing"))
    assert io.delete_empty_dir(str(tmp_path / "elsewhere"))
