"""Metadata of every table that Java wrote: the live files are those that Java's own readers list, decoded both ways."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lsm_core.format.manifest import table_to_entries
from lsm_core.metadata import TableStore, branches, bucket_groups, manifests, snapshots, tags
from lsm_core.metadata.manifests import fast_decode
from lsm_core.storage import LocalFileIO
from tests.support.data import golden_dir, golden_names, unpack_golden
from tests.support.references import all_references, file_names, metadata_references


@pytest.mark.parametrize("name", golden_names())
def test_live_files_are_those_that_java_lists(name: str, tmp_path: Path) -> None:
    story: dict[str, Any] = json.loads((golden_dir() / f"{name}.json").read_text())
    store = TableStore.open(LocalFileIO(), str(unpack_golden(name, tmp_path)), "db.t")
    assert snapshots.list_ids(store) == story["live_snapshots"]
    newest = snapshots.latest(store)
    assert newest is not None
    live = manifests.live_entries(store, newest)
    found = [
        (e.bucket, e.total_buckets, f.level, f.file_name, f.file_size, f.row_count, f.delete_row_count, f.min_sequence_number,
         f.max_sequence_number, f.schema_id, list(f.extra_files), None if f.value_stats_cols is None else list(f.value_stats_cols))
        for e in table_to_entries(live) for f in [e.file]
    ]  # fmt: skip
    keys = ("bucket", "total_buckets", "level", "name", "size", "row_count", "delete_row_count", "min_seq", "max_seq", "schema_id", "extra_files", "value_stats_cols")  # fmt: skip
    assert sorted(found, key=str) == sorted((tuple(file[key] for key in keys) for file in story["files"]), key=str)
    _files_are_where_the_store_says(store, live)
    _both_decoders_agree(store)


def _files_are_where_the_store_says(store: TableStore, live: Any) -> None:
    for partition, bucket, _, rows in bucket_groups(live):
        for entry in table_to_entries(rows):
            path = Path(store.data_path(partition, bucket, entry.file))
            assert path.stat().st_size == entry.file.file_size


def _both_decoders_agree(store: TableStore) -> None:
    for snapshot in snapshots.iterate(store):
        for meta in manifests.data_manifests(store, snapshot):
            slow = manifests.read_manifest(store, meta)  # few entries: record by record
            fast = fast_decode(store.file_io.read_bytes(store.manifest_path(meta.file_name)), meta.file_name)
            assert fast is not None
            assert fast.equals(slow)


def test_every_reference_of_a_java_table_exists(tmp_path: Path) -> None:
    for name in ("expired", "tags_branches", "dv_pk", "changelog_lookup", "overwrite"):
        if name not in golden_names():
            continue
        root = unpack_golden(name, tmp_path / name)
        on_disk = {path.name for path in root.rglob("*") if path.is_file()}
        store = TableStore.open(LocalFileIO(), str(root), "db.t")
        for each in branches.all_stores(store):
            held = [*snapshots.iterate(each), *tags.list_tags(each).values()]
            for snapshot in held:
                live = file_names(manifests.live_entries(each, snapshot))
                assert metadata_references(each, snapshot) | live <= on_disk
                assert metadata_references(each, snapshot) <= all_references(each, snapshot)
