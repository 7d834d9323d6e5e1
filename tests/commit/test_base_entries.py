"""A commit reads the manifests that may hold what it meets, and no others; what it must not miss it does not."""

from __future__ import annotations

from pathlib import Path

import pytest

from lsm_core.commit import CommitMessage, Committer, origin_of
from lsm_core.errors import CommitConflict, ConflictKind
from lsm_core.format.manifest import DataFileMeta
from lsm_core.metadata import manifests, snapshots
from lsm_core.metadata.store import TableStore
from lsm_core.storage import LocalFileIO
from tests.commit.tables import EMPTY, content, live_files, make_store, message, part, reopen, write_append, write_kv

STAYS = {"manifest.target-file-size": "1 b"}
"""Every manifest is large enough to be left as it is."""


class Watching(LocalFileIO):
    """Notes the manifests that are read."""

    def __init__(self) -> None:
        super().__init__()
        self.read: list[str] = []

    def read_bytes(self, path: str) -> bytes:
        name = path.rpartition("/")[2]
        if name.startswith("manifest-") and not name.startswith("manifest-list-"):
            self.read.append(name)
        return super().read_bytes(path)


def history(root: Path, commits: int = 12) -> TableStore:
    """A key-value table with a manifest a commit."""
    store = make_store(root, options={**STAYS, "bucket": "2"})
    for number in range(commits):
        write(store, number)
    return store


def write(store: TableStore, number: int, bucket: int = 0) -> None:
    origin = origin_of(store)
    files = write_kv(store, {"k": [number], "v": ["x"]}, first_sequence=number, bucket=bucket)
    made = message(store, new_files=files, bucket=bucket)
    Committer(store).commit([CommitMessage(EMPTY, bucket, 2, new_files=made.new_files, origin=origin)])


def watched(store: TableStore) -> tuple[TableStore, list[str]]:
    files = Watching()
    return reopen(store.root, files), files.read


def compaction(store: TableStore, old: DataFileMeta, bucket: int = 0) -> CommitMessage:
    return CommitMessage(EMPTY, bucket, 2, compact_before=(old,), compact_after=(old.upgrade(5),))


def test_an_append_reads_the_newest_manifest(tmp_path: Path) -> None:
    store, read = watched(history(tmp_path))
    write(store, 99)
    assert len(read) == 1
    assert len(content(store)) == 13


@pytest.mark.parametrize(("place", "most"), [(0, 2), (11, 1)], ids=["oldest", "newest"])
def test_a_compaction_reads_until_its_inputs_are_found(tmp_path: Path, place: int, most: int) -> None:
    store = history(tmp_path)
    old = sorted((file for _, _, file in live_files(store)), key=lambda file: file.min_sequence_number)[place]
    store, read = watched(store)
    Committer(store).commit([compaction(store, old)])
    assert len(read) <= most
    with pytest.raises(CommitConflict) as raised:
        Committer(store).commit([compaction(store, old)])
    assert raised.value.kind is ConflictKind.INPUTS_GONE


def test_a_partition_tells_its_buckets_by_one_entry(tmp_path: Path) -> None:
    store = make_store(
        tmp_path, {"p": "INT", "k": "BIGINT NOT NULL"}, primary_keys=("p", "k"), partition_keys=("p",), options=STAYS
    )
    for p in range(8):
        files = write_kv(store, {"p": [p], "k": [p]}, first_sequence=p, partition=part(store, p=p))
        Committer(store).commit([CommitMessage(part(store, p=p), 0, 2, new_files=files, origin=origin_of(store))])
    store, read = watched(store)
    files = write_kv(store, {"p": [3], "k": [9]}, first_sequence=9, partition=part(store, p=3))
    wrong = CommitMessage(part(store, p=3), 0, 4, new_files=files, origin=origin_of(store))
    read.clear()
    with pytest.raises(CommitConflict) as raised:
        Committer(store).commit([wrong])
    assert raised.value.kind is ConflictKind.BUCKET_COUNT and len(set(read)) == 1
    Committer(store).commit([CommitMessage(part(store, p=3), 0, 2, new_files=files, origin=origin_of(store))])


def test_a_file_that_is_there_is_found_where_the_history_is_not(tmp_path: Path) -> None:
    store = make_store(tmp_path, primary_keys=(), options=STAYS)
    files = write_append(store, {"k": [1], "v": ["a"]})
    made = message(store, new_files=files)  # without an origin nothing tells that it is new
    Committer(store).commit([made])
    for number in range(3):
        Committer(store).commit([message(store, new_files=write_append(store, {"k": [number], "v": ["b"]}))])
    for number in (1, 2, 3):
        store.file_io.delete(store.snapshot_path(number))
    with pytest.raises(CommitConflict) as raised:
        Committer(store).commit([made])
    assert raised.value.kind is ConflictKind.FILES_KNOWN
    latest = snapshots.latest(store)
    assert latest is not None and manifests.live_entries(store, latest).num_rows == 4
