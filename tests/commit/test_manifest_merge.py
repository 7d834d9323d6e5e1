"""Merging manifests never changes what is live, whatever was added, deleted and upgraded before."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lsm_core.commit import Committer
from lsm_core.commit.attempt import full_merge, merge_manifests, minor_merge
from lsm_core.format.manifest import (
    ADD,
    DELETE,
    DataFileMeta,
    ManifestEntry,
    ManifestFileMeta,
    entries_to_table,
    merge_entries,
    table_to_entries,
)
from lsm_core.format.stats import EMPTY_STATS
from lsm_core.metadata import manifests, snapshots
from lsm_core.metadata.store import TableStore
from tests.commit.tables import content, make_store, message, part, write_kv
from tests.support.samples import examples


def file(name: str, level: int = 0) -> DataFileMeta:
    return DataFileMeta(name, 10, 1, bytes(12), bytes(12), EMPTY_STATS, EMPTY_STATS, 0, 0, 0, level, file_source=0)


def partitioned_store(root: Path) -> TableStore:
    return make_store(root, {"p": "INT", "v": "STRING"}, primary_keys=(), partition_keys=("p",))


def write(store: TableStore, entries: Sequence[ManifestEntry]) -> ManifestFileMeta:
    (meta,) = manifests.write_manifests(store, entries_to_table(entries))
    return meta


def live(store: TableStore, metas: Sequence[ManifestFileMeta]) -> set[tuple[Any, ...]]:
    merged = merge_entries(manifests.entries_of(store, metas))
    assert not pc.any(pc.equal(merged.column("kind"), DELETE)).as_py()
    return {entry.identity for entry in table_to_entries(merged)}


@st.composite
def histories(draw: Any) -> list[list[tuple[int, int, str, int]]]:
    """Commits of (kind, partition, file, level): files appear, move up and go, as a real table's do."""
    alive: dict[tuple[int, str], int] = {}
    commits = []
    for number in range(draw(st.integers(1, 14))):
        entries = []
        for key in draw(st.lists(st.sampled_from(sorted(alive)), unique=True, max_size=3)) if alive else []:
            level = alive.pop(key)
            entries.append((DELETE, key[0], key[1], level))
            if draw(st.booleans()):
                alive[key] = level + 1
                entries.append((ADD, key[0], key[1], level + 1))
        for i in range(draw(st.integers(0 if entries else 1, 3))):
            key = (draw(st.integers(0, 2)), f"f{number}-{i}")
            alive[key] = 0
            entries.append((ADD, *key, 0))
        commits.append(entries)
    return commits


@settings(max_examples=examples(28), deadline=None)
@given(commits=histories(), data=st.data())
def test_no_merge_changes_the_live_files(tmp_path_factory: pytest.TempPathFactory, commits: Any, data: Any) -> None:
    store = partitioned_store(tmp_path_factory.mktemp("m"))
    metas = [
        write(
            store, [ManifestEntry(kind, part(store, p=p), 0, -1, file(name, level)) for kind, p, name, level in entries]
        )
        for entries in commits
    ]
    before = live(store, metas)
    target = data.draw(st.sampled_from([1, 1500, 3000, 1 << 20]))
    minor = minor_merge(store, metas, target, data.draw(st.integers(1, 5)))
    assert live(store, minor) == before
    full = full_merge(store, metas, target, data.draw(st.sampled_from([1, 3000, 1 << 30])))
    if full is not None:
        assert live(store, full) == before
        rewritten = [meta for meta in full if meta not in metas]
        assert sum(meta.num_deleted_files for meta in full) == 0 or rewritten == []
    # Merging merged manifests again, with a further commit on top, must still hold.
    again = merge_manifests(store, [*minor, write(store, [ManifestEntry(ADD, part(store, p=9), 0, -1, file("last"))])])
    assert {identity[3] for identity in live(store, again)} == {identity[3] for identity in before} | {"last"}


def test_a_minor_merge_waits_for_enough_files_and_keeps_the_order(tmp_path: Path) -> None:
    store = partitioned_store(tmp_path)
    metas = [write(store, [ManifestEntry(ADD, part(store, p=1), 0, -1, file(f"f{i}"))]) for i in range(5)]
    assert minor_merge(store, metas, 1 << 20, 6) == metas
    (merged,) = minor_merge(store, metas, 1 << 20, 5)
    assert manifests.read_manifest(store, merged).column("file_name").to_pylist() == [f"f{i}" for i in range(5)]
    pairs = minor_merge(store, metas, metas[0].file_size + 1, 30)
    assert [meta.num_added_files for meta in pairs] == [2, 2, 1]
    assert pairs[-1] == metas[-1]


def test_a_minor_merge_keeps_deletions_whose_addition_lies_elsewhere(tmp_path: Path) -> None:
    store = partitioned_store(tmp_path)
    here = part(store, p=1)
    metas = [
        write(store, [ManifestEntry(ADD, here, 0, -1, file("a")), ManifestEntry(ADD, here, 0, -1, file("b"))]),
        write(store, [ManifestEntry(DELETE, here, 0, -1, file("a"))]),
        write(store, [ManifestEntry(ADD, here, 0, -1, file("c"))]),
    ]
    first, *rest = metas
    merged = [first, *minor_merge(store, rest, 1 << 20, 2)]
    assert [meta.num_deleted_files for meta in merged] == [0, 1]
    assert {identity[3] for identity in live(store, merged)} == {"b", "c"}


def test_a_full_merge_leaves_large_manifests_alone_that_no_deletion_touches(tmp_path: Path) -> None:
    store = partitioned_store(tmp_path)
    large = [
        write(store, [ManifestEntry(ADD, part(store, p=p), 0, -1, file(f"p{p}-{i}")) for i in range(40)])
        for p in (1, 2, 3)
    ]
    target = min(meta.file_size for meta in large)
    small = [write(store, [ManifestEntry(DELETE, part(store, p=2), 0, -1, file("p2-7"))])]
    full = full_merge(store, [*large, *small], target, 1)
    assert full is not None
    assert full[:2] == [large[0], large[2]]
    assert [meta.num_added_files for meta in full[2:]] == [39]
    assert full_merge(store, [*large, *small], target, 1 << 30) is None
    assert full_merge(store, large, target, 0) is None


def test_a_hundred_commits_keep_their_manifests_few(tmp_path: Path) -> None:
    store = make_store(tmp_path, options={"manifest.merge-min-count": "7"})
    committer = Committer(store, "u")
    most = 0
    for i in range(30):
        committer.commit(
            [message(store, new_files=write_kv(store, {"k": [i], "v": ["x"]}, first_sequence=i))], commit_identifier=i
        )
        latest = snapshots.latest(store)
        assert latest is not None
        most = max(most, len(manifests.data_manifests(store, latest)))
    assert most <= 8
    assert content(store) == sorted([(i, "x") for i in range(30)], key=repr)


def test_merging_everything_away_gives_no_manifest(tmp_path: Path) -> None:
    store = partitioned_store(tmp_path)
    here = part(store, p=1)
    metas = [
        write(store, [ManifestEntry(ADD, here, 0, -1, file("a"))]),
        write(store, [ManifestEntry(DELETE, here, 0, -1, file("a"))]),
    ]
    assert full_merge(store, metas, 1 << 20, 1) == []
    assert minor_merge(store, metas, 1 << 20, 2) == []
    assert pa.concat_tables([manifests.entries_of(store, [])]).num_rows == 0
