"""Manifest compaction: few manifests of what is live, in bounded memory, and never another answer."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from lsm_core.cli.app import run
from lsm_core.commit import Committer
from lsm_core.commit.attempt import full_merge
from lsm_core.commit.message import deletions_of
from lsm_core.errors import PlanStale
from lsm_core.format.manifest import (
    ADD,
    ENTRY_SCHEMA,
    Cancelling,
    DataFileMeta,
    ManifestEntry,
    entries_to_table,
    merge_entries,
)
from lsm_core.format.stats import EMPTY_STATS
from lsm_core.metadata import manifests, snapshots
from tests.commit.tables import make_store, part
from tests.commit.test_unknown_fields import with_new_fields
from tests.maintenance.tables import content, keyed, rows, strays


def test_small_manifests_and_deletions_become_one_manifest_of_what_is_live(tmp_path: Path) -> None:
    table = keyed(tmp_path)
    for i in range(4):
        table.write(rows(range(i, i + 5), v=i))
    table.compact(full=True)
    table.write(rows([9], v=9))
    before, names = content(table), live(table)
    plan = table.plan_maintenance("manifests")
    assert len(plan.items) == 6
    assert {item.reason for item in plan.items} == {"smaller than 8.0 MiB", "holds 4 deletions"}
    report = table.apply(plan)
    latest = table.latest_snapshot()
    assert (report.snapshot_id, latest.id, latest.commit_kind.value) == (7, 7, "COMPACT")
    assert (report.manifests_in, report.manifests_out, report.entries_in, report.entries_out) == (6, 1, 10, 2)
    assert manifests.delta_list(table.store, latest) == []
    assert (latest.delta_record_count, latest.total_record_count) == (0, 8 + 1)
    assert content(table) == before and live(table) == names and not strays(table)
    assert table.verify(6, 7).ok
    again = table.apply(plan)
    assert (again.snapshot_id, again.applied_before.snapshot_id) == (None, 7)
    nothing = table.plan_maintenance("manifests")
    assert nothing.items == () and nothing.declined[0].reason == "nothing-to-merge"
    assert table.apply(nothing).snapshot_id is None
    assert run(["compact-manifests", "db.t", "-w", str(tmp_path / "wh")]) == 0
    # Writers go on, and expiry frees the old manifests.
    table.write(rows([1], v=1))
    assert table.expire_snapshots(retain_max=1).files_recorded > 6


def live(table: object) -> set[tuple[str, int]]:
    store = table.store  # type: ignore[attr-defined]
    latest = snapshots.latest(store)
    assert latest is not None
    entries = manifests.live_entries(store, latest)
    streamed = pa.concat_tables([entries.slice(0, 0).select(entries.column_names), *_named(store, latest, entries)])
    assert sorted(streamed.column("file_name").to_pylist()) == sorted(entries.column("file_name").to_pylist())
    return set(zip(entries.column("file_name").to_pylist(), entries.column("level").to_pylist(), strict=True))


def _named(store: object, latest: object, entries: pa.Table) -> list[pa.Table]:
    return [table.select(entries.column_names) for table in manifests.iter_live(store, latest)]  # type: ignore[arg-type]


def test_a_plan_whose_manifests_were_merged_by_another_is_stale(tmp_path: Path) -> None:
    table = keyed(tmp_path)
    for i in range(3):
        table.write(rows([i]))
    plan = table.plan_maintenance("manifests")
    Committer(table.store).compact_manifests()
    with pytest.raises(PlanStale, match="another process merged its manifests"):
        table.apply(plan)


def test_a_manifest_with_fields_of_a_later_version_stays(tmp_path: Path) -> None:
    table = keyed(tmp_path)
    for i in range(3):
        table.write(rows([i], v=i))
    name, data = with_new_fields(table.store, "entry")
    table.write(rows([7]))
    table.write(rows([8]))
    report = table.apply(table.plan_maintenance("manifests"))
    found = [meta.file_name for meta in manifests.data_manifests(table.store, table.latest_snapshot())]
    assert name in found and len(found) == 3 and report.manifests_out == 3
    assert Path(table.store.manifest_path(name)).read_bytes() == data
    assert len(content(table)) == 5 and not strays(table)


def test_a_file_that_came_back_is_kept_once(tmp_path: Path) -> None:
    store = make_store(tmp_path, {"p": "INT", "v": "STRING"}, primary_keys=(), partition_keys=("p",))
    meta = DataFileMeta("f", 10, 1, bytes(12), bytes(12), EMPTY_STATS, EMPTY_STATS, 0, 0, 0, 0, file_source=0)
    add = entries_to_table([ManifestEntry(ADD, part(store, p=1), 0, -1, meta)])
    written = [manifests.write_manifests(store, vector)[0] for vector in (add, deletions_of(add), add)]
    (merged,) = full_merge(store, written, 1 << 20, 1) or []
    assert (merged.num_added_files, merged.num_deleted_files) == (1, 0)
    assert full_merge(store, [*written, *manifests.write_manifests(store, deletions_of(add))], 1 << 20, 1) == []


@pytest.mark.parametrize("seed", range(3))
def test_cancelling_one_table_after_another_is_merging_all(tmp_path: Path, seed: int) -> None:
    random = np.random.default_rng(seed)
    store = make_store(tmp_path, {"p": "INT", "v": "STRING"}, primary_keys=(), partition_keys=("p",))
    places = [part(store, p=p) for p in range(3)]
    alive: dict[tuple[int, int], bool] = {}
    tables = []
    for _ in range(12):
        entries = []
        for number in random.integers(0, 40, 8).tolist():
            place = (number % 3, number)
            meta = DataFileMeta(f"f{number}", 10, 1, bytes(12), bytes(12), EMPTY_STATS, EMPTY_STATS, 0, 0, 0, 0)
            entries.append(ManifestEntry(1 if alive.get(place) else ADD, places[place[0]], 0, -1, meta))
            alive[place] = not alive.get(place)
        tables.append(entries_to_table(entries))
    whole = pa.concat_tables(tables)
    cancelling = Cancelling(whole.filter(pc.equal(whole.column("kind"), 1)))
    left = pa.concat_tables([cancelling.survivors(table) for table in tables])
    merged = merge_entries(whole)
    assert sorted(left.column("file_name").to_pylist()) == sorted(merged.column("file_name").to_pylist())


def test_many_entries_are_rolled_as_they_come(tmp_path: Path) -> None:
    """Manifests of the target size, whatever the tables' sizes; as many entries and in the same order."""
    store = make_store(tmp_path, {"p": "INT", "v": "STRING"}, primary_keys=(), partition_keys=("p",))
    store = store.copy({"manifest.target-file-size": "20 kb"})
    meta = DataFileMeta("f", 10, 1, bytes(12), bytes(12), EMPTY_STATS, EMPTY_STATS, 0, 0, 0, 0, file_source=0)
    first = entries_to_table([ManifestEntry(ADD, part(store, p=1), 0, -1, meta)])
    names = pa.array([f"data-{i:08d}" for i in range(40_000)])
    whole = pa.table(
        {
            name: names if name == "file_name" else pa.concat_arrays([first.column(name).chunk(0)] * 40_000)
            for name in ENTRY_SCHEMA.names
        },
        schema=ENTRY_SCHEMA,
    )
    written = manifests.write_manifests(store, (whole.slice(at, 3_000) for at in range(0, 40_000, 3_000)))
    assert manifests.entries_of(store, written).column("file_name").to_pylist() == names.to_pylist()
    assert len(written) == 4 and max(meta.file_size for meta in written) < 30_000
    assert sum(meta.file_size > 10_000 for meta in written) >= len(written) - 1
