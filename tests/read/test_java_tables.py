"""What only Java's tables have so far: file indexes that spare files, deletion vectors that travel with splits, hidden buckets."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from lsm_core.metadata import TableStore, manifests, snapshots
from lsm_core.read import Split, plan_scan, raw_read, to_arrow
from lsm_core.read.scan import read_split
from lsm_core.storage import LocalFileIO
from tests.support.data import golden_names, unpack_golden

NAMES = {"bloom_embedded", "index_external", "dv_pk", "dv_append", "postpone", "evolve_pk"}
pytestmark = pytest.mark.skipif(not set(golden_names()) >= NAMES, reason="another golden folder was named")


def open_table(name: str, place: Path) -> TableStore:
    return TableStore.open(LocalFileIO(), str(unpack_golden(name, place)), "db.t")


def test_an_embedded_bloom_filter_spares_files_at_planning(tmp_path: Path) -> None:
    store = open_table("bloom_embedded", tmp_path)
    whole = to_arrow(store, plan_scan(store))
    files = sum(split.file_count for split in plan_scan(store).splits)
    spared = 0
    for value in range(-5, 120):
        scan = plan_scan(store, filter=[("id", "=", value)])
        spared += files - sum(split.file_count for split in scan.splits)
        expected = whole.filter(pa.compute.equal(whole.column("id"), value))
        assert to_arrow(store, scan).num_rows == expected.num_rows
        deaf = plan_scan(store.copy({"file-index.read.enabled": "false"}), filter=[("id", "=", value)])
        assert sum(split.file_count for split in deaf.splits) >= sum(split.file_count for split in scan.splits)
    bounds_only = sum(
        files - sum(split.file_count for split in plan_scan(
            store.copy({"file-index.read.enabled": "false"}), filter=[("id", "=", value)]).splits)
        for value in range(-5, 120)
    )  # fmt: skip
    assert spared > bounds_only, "the filters rule out more than the statistics do"


def test_an_index_beside_its_file_spares_opening_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_table("index_external", tmp_path)
    whole = to_arrow(store, plan_scan(store))
    opened: list[str] = []
    real = raw_read.open_append
    monkeypatch.setattr(
        raw_read,
        "open_append",
        lambda store, partition, bucket, file, **rest: (
            opened.append(file.file_name) or real(store, partition, bucket, file, **rest)
        ),
    )
    low, high = whole.column("n").drop_null().to_pylist(), sorted(set(whole.column("s").drop_null().to_pylist()))
    asked = [[("n", "=", value)] for value in range(min(low), max(low) + 1)]
    asked += [[("s", "=", f"{value}{more}")] for value in high for more in ("", "?")]
    asked += [[("id", "=", value)] for value in range(80)]
    skipped = 0
    for test in asked:
        ((name, _, value),) = test
        scan = plan_scan(store, filter=test)
        opened.clear()
        found = to_arrow(store, scan)
        assert found.num_rows == whole.filter(pa.compute.equal(whole.column(name), value)).num_rows, test
        skipped += sum(split.file_count for split in scan.splits) - len(opened)
    assert skipped > 0


@pytest.mark.parametrize("name", ["dv_pk", "dv_append"])
def test_splits_carry_their_deletion_vectors(tmp_path: Path, name: str) -> None:
    store = open_table(name, tmp_path)
    seen = 0
    for number in snapshots.list_ids(store):
        scan = plan_scan(store, snapshot_id=number)
        sent = [Split.from_bytes(split.to_bytes()) for split in scan.splits]
        assert sent == list(scan.splits)
        seen += sum(vector is not None for split in sent for vector in split.deletions)
        rows = [batch for split in sent for batch in read_split(scan.store, split, scan.columns)]
        assert pa.Table.from_batches(rows, scan.arrow_schema).equals(to_arrow(store, scan))
        if name == "dv_pk":
            assert all(split.raw for split in scan.splits)
            assert all(file.level > 0 for split in scan.splits for file in split.files)
    assert seen > 0


def test_vectors_are_applied_where_rows_are_merged_too(tmp_path: Path) -> None:
    """The same vectors, read through the merge as a table without the option would: nothing deleted comes back."""
    from lsm_core.format.manifest import table_to_entries
    from lsm_core.metadata.indexes import deletion_vectors
    from lsm_core.metadata.live_files import bucket_groups
    from lsm_core.read import read_bucket_merged

    store = open_table("dv_pk", tmp_path)
    newest = snapshots.latest(store)
    assert newest is not None
    vectors = deletion_vectors(store, newest)
    live = manifests.live_entries(store, newest)
    plain, masked = 0, 0
    for partition, bucket, _, rows in bucket_groups(live.filter(pa.compute.greater(live.column("level"), 0))):
        for file in (entry.file for entry in table_to_entries(rows)):
            gone = {k: v for k, v in vectors.get((partition, bucket), {}).items() if k == file.file_name}
            plain += sum(b.num_rows for b in read_bucket_merged(store, partition, bucket, [file]))
            masked += sum(b.num_rows for b in read_bucket_merged(store, partition, bucket, [file], deletions=gone))
    assert masked == to_arrow(store, plan_scan(store)).num_rows < plain


def test_what_waits_for_a_bucket_is_not_seen(tmp_path: Path) -> None:
    store = open_table("postpone", tmp_path)
    newest = snapshots.latest(store)
    assert newest is not None
    assert manifests.live_entries(store, newest).num_rows > 0
    assert plan_scan(store).splits == ()


def test_filters_on_renamed_and_widened_columns_prune_old_files_rightly(tmp_path: Path) -> None:
    store = open_table("evolve_pk", tmp_path)
    for number in snapshots.list_ids(store):
        scan = plan_scan(store, snapshot_id=number)
        whole = to_arrow(store, scan)
        for name in ("a", "b", "b2", "c", "d", "k"):
            if not scan.schema.has_field(name):
                continue
            column = whole.column(name)
            tests: list[tuple[object, ...]] = [(name, "is null"), (name, "is not null")]
            tests += [(name, op, value) for value in column.drop_null().unique()[:4].to_pylist() for op in ("=", ">=")]
            for test in tests:
                found = to_arrow(store, plan_scan(store, snapshot_id=number, filter=[test]))
                predicate = plan_scan(store, snapshot_id=number, filter=[test]).filter
                assert predicate is not None
                assert found.num_rows == whole.filter(predicate.expression).num_rows, test
