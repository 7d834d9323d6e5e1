"""What a later version put into metadata is never silently lost: it stays, or what would lose it is refused by name."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import fastavro
import pytest

from lsm_core.commit import CommitMessage, Committer
from lsm_core.compact import run_bucket_task
from lsm_core.errors import UnsupportedFeature
from lsm_core.format.manifest import table_to_entries
from lsm_core.format.side_files import Tag
from lsm_core.format.snapshot import Snapshot
from lsm_core.metadata import manifests, snapshots
from lsm_core.metadata.store import TableStore
from lsm_core.storage import LocalFileIO
from tests.commit.tables import content, make_store, message, reopen, write_append, write_kv
from tests.support.stores import live_files, unit_task

NEW = {"name": "_TOMORROW", "type": ["null", {"type": "record", "name": "t", "fields": [{"name": "x", "type": "bytes"}]}], "default": None}  # fmt: skip


def again(path: Path, change: Any) -> int:
    """Rewrite an Avro file after ``change(schema, records)``; its new size."""
    with path.open("rb") as source:
        reader = fastavro.reader(source)
        schema, records = reader.writer_schema, list(reader)
    out = io.BytesIO()
    change(schema, records)
    fastavro.writer(out, schema, records, codec="zstandard")
    path.write_bytes(out.getvalue())
    return len(out.getvalue())


def with_new_fields(store: TableStore, where: str) -> tuple[str, bytes]:
    """Give the newest delta manifest (or its list) a field that nobody knows; its name and bytes."""
    root = Path(store.root)
    latest = snapshots.latest(store)
    assert latest is not None
    (meta,) = manifests.delta_list(store, latest)

    def into_manifest(schema: Any, records: list[Any]) -> None:
        (file,) = [field["type"] for field in schema["fields"] if field["name"] == "_FILE"]
        held = schema if where == "entry" else file
        if where == "stats":
            (held,) = [field["type"] for field in file["fields"] if field["name"] == "_VALUE_STATS"]
        held["fields"].append(NEW)
        for record in records:
            place = {"entry": record, "file": record["_FILE"], "stats": record["_FILE"]["_VALUE_STATS"]}[where]
            place["_TOMORROW"] = {"x": b"\x00kept"}

    def into_list(schema: Any, records: list[Any]) -> None:
        if where == "list":
            schema["fields"].append(NEW)
            for record in records:
                record["_TOMORROW"] = {"x": b"\x00kept"}
        for record in records:
            record["_FILE_SIZE"] = (root / "manifest" / record["_FILE_NAME"]).stat().st_size

    if where != "list":
        again(root / "manifest" / meta.file_name, into_manifest)
    size = again(root / "manifest" / latest.delta_manifest_list, into_list)
    path = root / "snapshot" / f"snapshot-{latest.id}"
    path.write_bytes(replace(latest, delta_manifest_list_size=size).to_json())
    return meta.file_name, (root / "manifest" / meta.file_name).read_bytes()


def add(store: TableStore, *keys: int) -> None:
    written = write_kv(store, {"k": list(keys), "v": ["a"] * len(keys)}, first_sequence=min(keys) * 10)
    Committer(store).commit([message(store, new_files=written)])


@pytest.mark.parametrize("where", ["entry", "file", "stats"])
def test_a_manifest_with_new_fields_stays_as_it_is(tmp_path: Path, where: str) -> None:
    options = {"manifest.merge-min-count": "2", "manifest.full-compaction-threshold-size": "1 b"}
    store = make_store(tmp_path, options=options)
    add(store, 1)
    name, data = with_new_fields(store, where)
    store = reopen(tmp_path)
    for key in range(2, 9):
        add(store, key)
    latest = snapshots.latest(store)
    assert latest is not None
    there = [meta.file_name for meta in manifests.data_manifests(store, latest)]
    assert name in there and len(there) <= 4  # the others were merged around it
    assert (tmp_path / "manifest" / name).read_bytes() == data
    assert len(content(store)) == 8
    entries = table_to_entries(manifests.live_entries(store, latest))
    field = {"entry": "_TOMORROW", "file": "_FILE._TOMORROW", "stats": "_FILE._VALUE_STATS._TOMORROW"}[where]
    assert [entry.file.unknown for entry in entries if entry.file.unknown] == [field]
    # A deletion cancels what the old manifest adds, although both stay.
    (old,) = [entry.file for entry in entries if entry.file.unknown]
    Committer(store).commit([CommitMessage(bytes(12), 0, 1, deleted_files=(old,))])
    add(store, 20)
    assert len(content(store)) == 8
    assert old.file_name not in {file.file_name for file in live_files(store)[bytes(12), 0]}


def test_an_entry_with_new_fields_is_not_written_again(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    add(store, 1, 2)
    with_new_fields(store, "file")
    store = reopen(tmp_path)
    ((file,),) = live_files(store).values()
    raised = CommitMessage(bytes(12), 0, 1, compact_before=(file,), compact_after=(file.upgrade(5),))
    before = content(store)
    with pytest.raises(UnsupportedFeature, match=rf"{file.file_name}, whose _FILE\._TOMORROW"):
        Committer(store).commit([raised])
    assert snapshots.latest_id(store) == 1
    # So a compaction rewrites what it would have raised to another level.
    task = unit_task(store, bytes(12), 0, [file.file_name], 5)
    result = run_bucket_task(store, task)
    assert [item.file_name for item in result.message.compact_after] != [file.file_name]
    Committer(store).commit([result.message])
    assert content(store) == before


def test_new_fields_of_a_manifest_list_are_carried_along(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    add(store, 1)
    name, _ = with_new_fields(store, "list")
    store = reopen(tmp_path)
    for key in (2, 3):
        add(store, key)
    latest = snapshots.latest(store)
    assert latest is not None
    with (tmp_path / "manifest" / latest.base_manifest_list).open("rb") as source:
        found = {record["_FILE_NAME"]: record["_TOMORROW"] for record in fastavro.reader(source)}
    assert found.pop(name) == {"x": b"\x00kept"}
    assert set(found.values()) == {None}
    assert len(content(store)) == 3


def test_new_members_of_a_snapshot_stay_with_what_is_made_of_it(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    add(store, 1)
    path = tmp_path / "snapshot" / "snapshot-1"
    path.write_text(json.dumps({**json.loads(path.read_text()), "logOffsets": {"0": 7}, "tomorrow": {"x": [1, None]}}))
    add(reopen(tmp_path), 2)
    members = json.loads((tmp_path / "snapshot" / "snapshot-2").read_text())
    assert (members["tomorrow"], members["logOffsets"]) == ({"x": [1, None]}, {"0": 7})
    snapshot = Snapshot.from_json(path.read_bytes(), "s")
    assert Snapshot.from_json(snapshot.to_json(), "s") == snapshot
    tag = Tag(snapshot, 1_700_000_000_000, 5_000)
    assert Tag.from_json(tag.to_json(), "t") == tag
    assert json.loads(tag.to_json())["tomorrow"] == {"x": [1, None]}


class _Unreadable(LocalFileIO):
    """Fails once to read statistics."""

    failures = 1

    def read_bytes(self, path: str) -> bytes:
        if "/statistics/" in path and self.failures:
            self.failures -= 1
            raise OSError("try again later")
        return super().read_bytes(path)


def test_statistics_outlive_one_failure_to_read_them(tmp_path: Path) -> None:
    store = make_store(tmp_path, primary_keys=())
    Committer(store).commit([message(store, new_files=write_append(store, {"k": [1], "v": ["a"]}))])
    path = tmp_path / "snapshot" / "snapshot-1"
    path.write_text(json.dumps({**json.loads(path.read_text()), "statistics": "stat-1"}))
    (tmp_path / "statistics").mkdir()
    (tmp_path / "statistics" / "stat-1").write_text(json.dumps({"schemaId": 0}))
    for file_io in (_Unreadable(), LocalFileIO()):
        here = reopen(tmp_path, file_io)
        Committer(here).commit([message(here, new_files=write_append(here, {"k": [1], "v": ["a"]}))])
        latest = snapshots.latest(here)
        assert latest is not None
        assert latest.statistics == "stat-1"
