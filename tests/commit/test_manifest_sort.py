"""Manifests sorted by a partition column: live files stay the same, ranges of manifests stop overlapping."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lsm_core import Catalog, Schema, Table
from lsm_core.commit import manifest_sort
from lsm_core.commit.attempt import merge_manifests
from lsm_core.commit.manifest_sort import RangedManifest, build_runs, pick_runs, plan_rewrites, split_sections
from lsm_core.errors import InvalidOption
from lsm_core.format.manifest import ADD, ManifestEntry, ManifestFileMeta, entries_to_table
from lsm_core.format.stats import EMPTY_STATS
from lsm_core.metadata import manifests, snapshots
from lsm_core.sql.procedures import prepare_call
from tests.commit.tables import part
from tests.commit.test_manifest_merge import file, histories, live, partitioned_store, write
from tests.support.samples import examples

FIELDS = pa.schema([("p", pa.int32()), ("q", pa.string()), ("v", pa.int64())])
META = ManifestFileMeta("m", 1, 1, 0, EMPTY_STATS, 0)


def ranged(place: int, low: int, high: int, size: int, **flags: bool) -> RangedManifest:
    meta = replace(META, file_name=f"m{place}", file_size=size)
    return RangedManifest(meta, place, (True, low), (True, high), **flags)


@settings(max_examples=examples(10), deadline=None)
@given(commits=histories(), data=st.data())
def test_sorting_keeps_the_live_files(tmp_path_factory: pytest.TempPathFactory, commits: Any, data: Any) -> None:
    options = {
        "manifest-sort.enabled": "true",
        "manifest.target-file-size": data.draw(st.sampled_from(["1 b", "1500 b", "3 kb", "1 mb"])),
        "manifest.full-compaction-threshold-size": data.draw(st.sampled_from(["1 b", "3 kb", "1 gb"])),
        "manifest-sort.max-rewrite-size": data.draw(st.sampled_from(["1 b", "4 kb", "1 gb"])),
        "manifest.merge-min-count": data.draw(st.sampled_from(["1", "3"])),
    }
    store = partitioned_store(tmp_path_factory.mktemp("sort")).copy(options)
    metas: list[ManifestFileMeta] = []
    for number, commit in enumerate(commits):
        entries = [ManifestEntry(kind, part(store, p=p), 0, -1, file(name, level)) for kind, p, name, level in commit]
        metas += manifests.write_manifests(store, entries_to_table(entries))
        before = live(store, metas)
        if number % 3 == 2:
            metas = merge_manifests(store, metas)
            assert live(store, metas) == before
            if options["manifest.full-compaction-threshold-size"] == "1 b":
                assert sum(meta.num_deleted_files for meta in metas) == 0
    assert live(store, merge_manifests(store, metas)) == live(store, metas)


@pytest.mark.parametrize("at_once", [1, 500_000])
def test_overlapping_manifests_are_sorted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_once: int) -> None:
    monkeypatch.setattr(manifest_sort, "_ENTRIES_AT_ONCE", at_once)
    store = partitioned_store(tmp_path)
    metas = [
        write(store, [ManifestEntry(ADD, part(store, p=p), 0, -1, file(f"f{n}-{p:02}")) for p in range(20)])
        for n in range(6)
    ]
    target = min(meta.file_size for meta in metas)
    store = store.copy({"manifest-sort.enabled": "true", "manifest.target-file-size": f"{target} b"})
    merged = merge_manifests(store, metas)
    assert live(store, merged) == live(store, metas)
    assert not {meta.file_name for meta in metas} & {meta.file_name for meta in merged}
    names = [name for meta in merged for name in manifests.read_manifest(store, meta).column("file_name").to_pylist()]
    assert names == [f"f{n}-{p:02}" for p in range(20) for n in range(6)]
    parts = manifest_sort.ranged_manifests(store, merged, 0, target)
    assert len(build_runs([part for part in parts if not part.small])) == 1
    assert merge_manifests(store, merged) == merged


def test_runs_are_picked_as_in_universal_compaction() -> None:
    disjoint = [ranged(i, i * 10, i * 10 + 10, 100) for i in range(9)]
    assert len(build_runs(disjoint)) == 1
    layers = [ranged(i, 0, 9, 10 * 4**i) for i in range(5)]
    runs = build_runs(layers)
    assert [run.level for run in runs] == [0, 1, 2, 3, 4]
    assert pick_runs(runs[:4], 200, 1) == []
    assert [run.size for run in pick_runs(runs, 200, 1)] == [10, 40]
    assert pick_runs(build_runs([ranged(i, 0, 9, 10) for i in range(5)]), 200, 1) != []
    assert len(pick_runs(build_runs([ranged(i, 0, 9, 10) for i in range(5)]), 200, 1)) == 5


def test_the_budget_limits_the_sorting_only() -> None:
    parts = [ranged(i, 0, 9, 100) for i in range(4)] + [ranged(4, 20, 29, 100, small=True)]
    parts += [ranged(5, 20, 29, 100)]
    sections = split_sections(parts, 100)
    assert [len(section) for section in sections] == [4, 2]

    def groups(budget: int, has_deletions: bool = False) -> list[tuple[list[int], bool]]:
        plan = plan_rewrites(sections, 150, 3, budget, has_deletions)
        return [([part.place for part in section], together) for section, together in plan]

    assert groups(1000) == [([0, 1, 2, 3], True), ([4, 5], True)]
    assert groups(150) == [([0, 1], True), ([4, 5], True), ([2, 3], False)]
    assert groups(400) == [([0, 1, 2, 3], True), ([4, 5], True)]
    assert groups(1) == [([0, 1], True), ([4, 5], True), ([2, 3], False)]
    assert [len(section) for section in split_sections(parts, 1000)] == [6]


def _create(root: Path, options: dict[str, str], partitions: list[str]) -> Table:
    catalog = Catalog(str(root))
    catalog.create_database("db")
    return catalog.create_table("db.t", Schema(FIELDS, [], partitions, {"bucket": "-1", **options}))


def test_procedure_sorts_by_the_column_of_its_argument(tmp_path: Path) -> None:
    table = _create(tmp_path, {}, ["p", "q"])
    for number in range(4):
        table.refresh().write(pa.table({"p": [number, number + 1], "q": [str(9 - number), "5"], "v": [1, 2]}, FIELDS))
    before = table.refresh().to_arrow().num_rows
    call = "CALL sys.compact_manifest(table => 'db.t', manifest_sort_enabled => true, "
    prepare_call(Catalog(str(tmp_path)), call + "manifest_sort_partition_field => 'q')").apply()
    table = table.refresh()
    store, snapshot = table.store, snapshots.latest(table.store)
    assert snapshot is not None
    (meta,) = manifests.data_manifests(store, snapshot)
    partitions = manifests.read_manifest(store, meta).column("partition").to_pylist()
    values = [manifest_sort.decode_row(partition, store.schema.partition_types)[1] for partition in partitions]
    assert values == sorted(values)
    assert table.to_arrow().num_rows == before
    with pytest.raises(InvalidOption, match="partition column: p, q"):
        prepare_call(Catalog(str(tmp_path)), call + "manifest_sort_partition_field => 'v')").apply()


def test_tables_without_partitions_cannot_sort_manifests(tmp_path: Path) -> None:
    with pytest.raises(InvalidOption, match="without partitions"):
        _create(tmp_path, {"manifest-sort.enabled": "true"}, [])
    with pytest.raises(InvalidOption, match="a partition column: p"):
        _create(tmp_path / "2", {"manifest-sort.enabled": "true", "manifest-sort.partition-field": "v"}, ["p"])


def test_plan_lists_what_the_sort_rewrites(tmp_path: Path) -> None:
    table = _create(tmp_path, {"manifest-sort.enabled": "true", "manifest.target-file-size": "1 b"}, ["p"])
    for number in range(6):
        table.refresh().write(pa.table({"p": [0, 9], "q": ["a", "b"], "v": [number, 2]}, FIELDS))
    table = table.copy({"manifest.target-file-size": "8 mb"}).refresh()
    plan = table.plan_maintenance("manifests")
    assert {item.reason for item in plan.items} == {"smaller than 8,388,608 bytes"}
    report = table.apply(plan)
    assert report.manifests_out == 1
    assert table.refresh().plan_maintenance("manifests").items == ()
