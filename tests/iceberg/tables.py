"""Small tables with Iceberg metadata, and an independent reading of what this metadata says."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa

from lsm_core import Catalog, Schema
from lsm_core.format import avro
from lsm_core.metadata import manifests, snapshots
from lsm_core.table import Table

FIELDS = pa.schema(
    [pa.field("p", pa.string(), nullable=False), pa.field("k", pa.int64(), nullable=False), ("v", pa.string())]
)
LOCAL = {"metadata.iceberg.storage": "table-location"}


def make_table(
    root: Path, options: Mapping[str, str] | None = None, *, keyed: bool = False, parts: bool = True
) -> Table:
    """Create db.t with Iceberg metadata in the table's folder."""
    catalog = Catalog(str(root))
    catalog.create_database("db", ignore_if_exists=True)
    keys = ["p", "k"] if keyed and parts else ["k"] if keyed else []
    chosen = {**LOCAL, **({"bucket": "1"} if keyed else {}), **(options or {})}
    return catalog.create_table(
        "db.t", Schema(FIELDS, primary_keys=keys, partition_keys=["p"] if parts else [], options=chosen)
    )


def rows(keys: Sequence[int], value: str = "v", part: str = "a") -> pa.Table:
    """Return one row per key."""
    return pa.table({"p": [part] * len(keys), "k": list(keys), "v": [value] * len(keys)}, schema=FIELDS)


def folder_of(table: Table) -> Path:
    """Return the folder of the table's Iceberg metadata, if it is in the table's folder."""
    return Path(table.store.root) / "metadata"


def metadata_of(folder: Path) -> dict[str, Any]:
    """Return the content of the metadata file that the hint names."""
    version = (folder / "version-hint.text").read_text()
    return dict(json.loads((folder / f"v{version}.metadata.json").read_text()))


def records(path: Path) -> list[dict[str, Any]]:
    """Return the records of an Avro file, decoded without the code under test."""
    container = avro.Container(pa.BufferReader(path.read_bytes()), str(path))
    found: list[dict[str, Any]] = []
    for block in container.blocks:
        stream = io.BytesIO(container.plain(block))
        found += [fastavro.schemaless_reader(stream, container.schema) for _ in range(block.rows)]
    return found


def listed_manifests(folder: Path, snapshot_id: int | None = None) -> list[dict[str, Any]]:
    """Return the rows of the manifest list of a snapshot; None for the current one."""
    metadata = metadata_of(folder)
    chosen_id = metadata["current-snapshot-id"] if snapshot_id is None else snapshot_id
    (entry,) = [entry for entry in metadata["snapshots"] if entry["snapshot-id"] == chosen_id]
    return records(folder / Path(entry["manifest-list"]).name)


def listed_files(folder: Path, snapshot_id: int | None = None) -> dict[str, int]:
    """Return the rows of each live data file that Iceberg readers see in a snapshot, by path."""
    files: dict[str, int] = {}
    for manifest in listed_manifests(folder, snapshot_id):
        live = 0
        for entry in records(folder / Path(manifest["manifest_path"]).name):
            if entry["status"] != 2:
                live += 1
                if manifest["content"] == 0:
                    files[entry["data_file"]["file_path"]] = entry["data_file"]["record_count"]
        assert live == manifest["added_files_count"] + manifest["existing_files_count"]
    return files


def expected_files(table: Table, *, any_level: bool = False) -> dict[str, int]:
    """Return the rows of each file of the newest snapshot that needs no merge, by path.

    Args:
        table: the table.
        any_level: whether files above level 0 need no merge, as with deletion vectors.
    """
    store = table.store
    snapshot = snapshots.latest(store)
    assert snapshot is not None
    files = {}
    for entry in manifests.live_entries(store, snapshot).to_pylist():
        top = store.options.num_levels - 1
        if not store.has_primary_key or entry["level"] == top or (any_level and entry["level"] > 0):
            path = store.data_path(entry["partition"], entry["bucket"], entry["file_name"])
            files[path] = entry["row_count"]
    return files


def assert_current(table: Table, *, any_level: bool = False) -> dict[str, Any]:
    """Check that the Iceberg metadata shows the newest snapshot, file by file, and that no file is missing or surplus."""
    folder = folder_of(table)
    metadata = metadata_of(folder)
    latest = snapshots.latest_id(table.store)
    assert metadata["current-snapshot-id"] == latest
    assert metadata["last-sequence-number"] == latest
    files = expected_files(table, any_level=any_level)
    assert listed_files(folder) == files
    summary = metadata["snapshots"][-1]["summary"]
    assert (summary["total-data-files"], summary["total-records"]) == (str(len(files)), str(sum(files.values())))
    assert_no_strays(folder, metadata)
    return metadata


def assert_no_strays(folder: Path, metadata: dict[str, Any]) -> None:
    """Check that the folder has exactly the manifests and lists that the metadata needs."""
    needed = {Path(entry["manifest-list"]).name for entry in metadata["snapshots"]}
    for name in list(needed):
        needed |= {Path(manifest["manifest_path"]).name for manifest in records(folder / name)}
    assert {path.name for path in folder.glob("*.avro")} == needed
