"""Damaged index files and changelogs: one error that names table, file or option; nothing committed, nothing of it left, and others go on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from lsm_core import Table
from lsm_core.errors import CommitConflict, ConflictKind, CorruptFile, DredgeError, InvalidOption
from lsm_core.format.deletion_vector import DeletionVector, index_file
from lsm_core.format.manifest import DeletionVectorRange, IndexManifestEntry
from lsm_core.format.partitions import partition_bytes
from lsm_core.metadata import manifests
from lsm_core.metadata.indexes import index_file_path
from lsm_core.metadata.store import TableStore
from tests.faults.kinds import DYNAMIC, KINDS, Kind, content, named, opened, rows
from tests.support.samples import one_in

Change = Callable[[TableStore, IndexManifestEntry, Path], IndexManifestEntry | None]


def _missing(_: TableStore, __: IndexManifestEntry, path: Path) -> None:
    path.unlink()


def _short(_: TableStore, __: IndexManifestEntry, path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-3])


def _empty(_: TableStore, __: IndexManifestEntry, path: Path) -> None:
    path.write_bytes(b"")


def _elsewhere(bucket: int) -> Change:
    def moved(_: TableStore, entry: IndexManifestEntry, __: Path) -> IndexManifestEntry:
        return replace(entry, bucket=bucket)

    return moved


def _beyond(_: TableStore, entry: IndexManifestEntry, path: Path) -> IndexManifestEntry:
    """A vector, whole in itself, of rows that its file has not."""
    assert entry.deletion_vectors is not None
    vectors = [DeletionVector.of([0, 1 << 20])] * len(entry.deletion_vectors)
    data, places = index_file(vectors)
    path.write_bytes(data)
    ranges = tuple(
        DeletionVectorRange(vector.data_file, *place, 2)
        for vector, place in zip(entry.deletion_vectors, places, strict=True)
    )
    return replace(entry, file_size=len(data), deletion_vectors=ranges)


def damage(table: Table, change: Change) -> str:
    """Damage the first index file, and what its index manifest tells of it; the name that an error must give."""
    store, snapshot = table.store, table.latest_snapshot()
    assert snapshot is not None
    entries = manifests.index_entries(store, snapshot)
    path = Path(index_file_path(store, entries[0]))
    changed = change(store, entries[0], path)
    if changed is not None:
        name = manifests.write_index_manifest(store, None, [], [changed, *entries[1:]])
        assert name is not None
        assert snapshot.index_manifest is not None
        Path(store.manifest_path(name)).replace(store.manifest_path(snapshot.index_manifest))
    return path.name


def files(table: Table) -> set[str]:
    root = Path(table.store.root)
    return {path.name for path in root.rglob("*") if path.is_file() and "dredge" not in path.relative_to(root).parts[0]}


DAMAGES: dict[str, Change] = {
    "missing": _missing,
    "short": _short,
    "empty": _empty,
    "of a bucket that cannot be": _elsewhere(1 << 20),
    "of a bucket that is not there": _elsewhere(777),
    "beyond": _beyond,
}
STATEMENTS = ["dynamic write", "vectors minor", "vectors full", "append delete", "append update", "append compaction"]


@pytest.mark.parametrize("damaged", one_in(2, DAMAGES))
@pytest.mark.parametrize("name", STATEMENTS)
def test_a_damaged_index_file_is_named_and_nothing_is_committed(tmp_path: Path, name: str, damaged: str) -> None:
    kind = KINDS[name]
    if damaged == "beyond" and name.startswith("dynamic"):
        damaged = "short"  # hashes have no positions
    kind.fill(kind.create(tmp_path))
    table = opened(tmp_path)
    file = damage(table, DAMAGES[damaged])
    before, latest = files(table), table.snapshots()[-1].id
    with pytest.raises(DredgeError, match=rf"(?s){file}|index-manifest") as caught:
        kind.statement(opened(tmp_path))
    assert "db.db/t" in str(caught.value) or "db.t" in str(caught.value)
    assert opened(tmp_path).snapshots()[-1].id == latest
    assert files(table) == before


@pytest.mark.parametrize("damaged", one_in(2, ["missing", "short", "empty", "beyond"], 1))
@pytest.mark.parametrize("name", ["vectors minor", "append delete", "append buckets delete"])
def test_readers_name_a_damaged_file_of_vectors(tmp_path: Path, name: str, damaged: str) -> None:
    kind = KINDS[name]
    kind.fill(kind.create(tmp_path))
    if name == "append buckets delete":
        opened(tmp_path).delete([("k", "in", [2, 3])])
    file = damage(opened(tmp_path), DAMAGES[damaged])
    with pytest.raises(CorruptFile, match=rf"db\.db/t/.*{file}"):
        opened(tmp_path).to_arrow()


PRODUCERS = ["input changelog, write", "lookup changelog, write", "full-compaction changelog, write"]


@pytest.mark.parametrize("name", PRODUCERS)
def test_a_changelog_file_that_is_gone_is_named_by_streams_and_hinders_no_batch_reader(
    tmp_path: Path, name: str
) -> None:
    kind = KINDS[name]
    kind.fill(kind.create(tmp_path))
    table = opened(tmp_path)
    table.compact(full=True)
    found = [s for s in table.snapshots() if s.changelog_manifest_list]
    lost = manifests.changelog_entries(table.store, found[-1]).column("file_name")[0].as_py()
    (path,) = Path(table.store.root).rglob(lost)
    path.unlink()
    rows_before = content(table)
    stream = opened(tmp_path).new_stream_scan(from_snapshot=1)

    def all_of_it() -> None:
        while (batch := stream.next()) is not None:
            batch.to_arrow()

    with pytest.raises(CorruptFile, match=rf"db\.db/t/.*{lost}.*missing"):
        all_of_it()
    assert content(opened(tmp_path)) == rows_before
    opened(tmp_path).write(rows([1], 5))
    assert named(table.store) >= {lost}


def test_two_writers_that_give_one_key_two_buckets_conflict_by_name(tmp_path: Path) -> None:
    kind = KINDS["dynamic write"]
    kind.fill(kind.create(tmp_path))
    first, second = opened(tmp_path).new_write(), opened(tmp_path).new_write()
    with first, second:
        first.write(rows([100, 101, 102], 1))
        second.write(rows([300, 301, 302, 303, 304, 100], 2))
        ours, theirs = first.prepare_commit(), second.prepare_commit()
        opened(tmp_path).new_commit().commit(ours)
        before = content(opened(tmp_path))
        with pytest.raises(CommitConflict, match=r"table db\.t: the hash index of partition p=a was changed") as caught:
            opened(tmp_path).new_commit().commit(theirs)
    assert caught.value.kind is ConflictKind.INDEX_CHANGED
    table = opened(tmp_path)
    assert content(table) == before
    assert len(table.snapshots()) == 3
    table.write(rows([300, 301, 302, 303, 304, 100], 2))
    assert len(content(table)) == len({row[:2] for row in content(table)}) == 20


@pytest.mark.parametrize(
    ("options", "named_option"),
    [
        ({"dynamic-bucket.target-row-num": "0"}, "dynamic-bucket.target-row-num"),
        ({"dynamic-bucket.max-buckets": "0"}, "dynamic-bucket.max-buckets"),
        ({"changelog-producer": "input", "merge-engine": "first-row"}, "changelog-producer"),
        ({"changelog-producer": "full-compaction", "merge-engine": "first-row"}, "changelog-producer"),
        ({"deletion-vectors.enabled": "true", "merge-engine": "first-row"}, "deletion-vectors.enabled"),
        ({"deletion-vectors.enabled": "true", "changelog-producer": "full-compaction"}, "deletion-vectors.enabled"),
        ({"changelog-producer": "sometimes"}, "changelog-producer"),
    ],
)
def test_options_that_do_not_go_together_are_named_before_a_table_is_there(
    tmp_path: Path, options: dict[str, str], named_option: str
) -> None:
    kind = Kind(lambda _: None, lambda _: None, {**DYNAMIC, **options})
    with pytest.raises(InvalidOption, match=named_option) as caught:
        kind.create(tmp_path)
    assert "db.t" in str(caught.value)
    assert not (tmp_path / "db.db" / "t").exists()


def test_a_bad_target_that_a_write_is_given_leaves_nothing(tmp_path: Path) -> None:
    kind = KINDS["dynamic write"]
    kind.fill(kind.create(tmp_path))
    before = files(opened(tmp_path))

    def attempt() -> Any:
        return opened(tmp_path).copy({"dynamic-bucket.target-row-num": "0"}).write(rows([77], 1))

    with pytest.raises(InvalidOption, match=r"dynamic-bucket\.target-row-num.*db\.t"):
        attempt()
    assert files(opened(tmp_path)) == before


def _of_partition(partition: bytes) -> Change:
    def moved(_: TableStore, entry: IndexManifestEntry, __: Path) -> IndexManifestEntry:
        return replace(entry, partition=partition)

    return moved


def _rescale(table: Table) -> Any:
    return table.apply(table.plan_maintenance("rescale", bucket_num=2))


def _background(table: Table) -> Any:
    with table.new_stream_write("job") as writer:
        writer.write(rows(range(5), 1000))
        writer.compact({"p": "a"}, 0, full=True)
        return writer.prepare_commit(wait_compaction=True, commit_identifier=1)


def _stream(table: Table) -> Any:
    stream = table.copy({"streaming-read-overwrite": "true"}).new_stream_scan(from_snapshot=1)
    while stream.next() is not None:
        pass


def _difference(table: Table) -> Any:
    latest = table.snapshots()[-1].id
    return table.incremental(latest - 1, latest, mode="diff")


WHO: dict[str, Callable[[Table], Any]] = {
    "read": lambda table: table.to_arrow(),
    "lookup": lambda table: table.lookup(rows([3, 12], 0).select(["p", "k"])),
    "explain": lambda table: table.explain_row({"p": "a", "k": 12}),
    "difference": _difference,
    "stream of overwrites": _stream,
    "verify": lambda table: table.verify(table.snapshots()[-1].id - 1, table.snapshots()[-1].id),
    "rescale": _rescale,
    "compaction": lambda table: table.compact(full=True),
    "background compaction": _background,
}


@pytest.mark.parametrize(("who", "elsewhere"), one_in(3, product(WHO, ("bucket", "partition"))))
def test_whoever_needs_a_vector_that_is_listed_for_another_place_says_so(
    tmp_path: Path, who: str, elsewhere: str
) -> None:
    kind = KINDS["vectors minor"]
    kind.fill(kind.create(tmp_path))
    table = opened(tmp_path)
    table.write(rows(range(5), 0, "b"))
    table.compact()
    other = partition_bytes(table.schema, {"p": "b"}, table.name)
    file = damage(opened(tmp_path), _elsewhere(777) if elsewhere == "bucket" else _of_partition(other))
    if who == "stream of overwrites":
        # it takes back what the rows were before: vectors of the version that was replaced
        table.drop_partitions([{"p": "a"}])
    before, latest = files(table), table.snapshots()[-1].id
    with pytest.raises(CorruptFile, match=rf"(?s){file}.*table db\.t.*p=a, bucket 0") as caught:
        WHO[who](opened(tmp_path))
    assert ("bucket 777" if elsewhere == "bucket" else "p=b") in str(caught.value)
    assert opened(tmp_path).snapshots()[-1].id == latest
    assert files(table) == before
