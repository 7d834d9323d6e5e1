"""Scans: filters see merged rows, pruning hides nothing, old snapshots stay readable, bad input has a typed error."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from lsm_core.errors import ColumnNotFound, CorruptFile, InvalidFilter, SnapshotNotFound
from lsm_core.format.binary_row import EMPTY_ROW, encode_rows
from lsm_core.format.manifest import ADD, DataFileMeta, ManifestEntry, entries_to_table
from lsm_core.format.stats import SimpleStats
from lsm_core.metadata.store import TableStore
from lsm_core.read import Split, plan_scan, to_arrow, to_batches
from lsm_core.read.merge_read import sections_of
from lsm_core.read.splits import cut
from tests.support.stores import full_tasks, make_store, read, write

FIELDS = {"dt": "STRING NOT NULL", "k": "INT NOT NULL", "s": "STRING", "v": "BIGINT"}


def batch(rows: list[tuple[str, int, str | None, int | None]]) -> pa.Table:
    return pa.table(dict(zip(FIELDS, map(list, zip(*rows, strict=True)), strict=True)))


@pytest.fixture
def store(tmp_path: Path) -> TableStore:
    made = make_store(tmp_path / "t", FIELDS, ["dt", "k"], ["dt"], {"bucket": "2"})
    write(made, batch([("a", k, f"s{k}", k) for k in range(50)] + [("b", k, None, k) for k in range(50, 60)]))
    write(made, batch([("a", k, f"new{k}", 1000 + k) for k in range(10, 20)]))
    write(made, batch([("a", 3, None, None), ("b", 55, None, None)]), ["-D", "-D"])
    return made


def rows(table: pa.Table) -> set[tuple[object, ...]]:
    return set(zip(*(table.column(name).to_pylist() for name in table.column_names), strict=True))


EXPECTED = {
    ("a", k, f"new{k}" if 10 <= k < 20 else f"s{k}", 1000 + k if 10 <= k < 20 else k) for k in range(50) if k != 3
} | {("b", k, None, k) for k in range(50, 60) if k != 55}


def test_all_rows_are_the_newest_and_not_the_deleted(store: TableStore) -> None:
    found = read(store)
    assert found.schema == store.schema.arrow_schema
    assert rows(found) == EXPECTED
    assert found.num_rows == len(EXPECTED)


@pytest.mark.parametrize(
    ("given", "keep"),
    [
        ([("v", "=", 12)], lambda r: r[3] == 12),
        ([("v", ">", 1000)], lambda r: r[3] > 1000),
        ([("v", "<", 5)], lambda r: r[3] < 5),
        ([("s", "starts with", "new1")], lambda r: (r[2] or "").startswith("new1")),
        ([("k", "=", 12)], lambda r: r[1] == 12),
        ([("k", "in", [3, 12, 55, 56])], lambda r: r[1] in (3, 12, 55, 56)),
        ([("dt", "=", "b")], lambda r: r[0] == "b"),
        ([("dt", "=", "a"), ("k", "<", 5)], lambda r: r[0] == "a" and r[1] < 5),
        ([[("dt", "=", "b")], [("k", "=", 0)]], lambda r: r[0] == "b" or r[1] == 0),
        ([("dt", "is null")], lambda r: False),
        ([("s", "is null")], lambda r: r[2] is None),
        ((pc.field("k") > 17) & (pc.field("v") < 1050), lambda r: r[1] > 17 and r[3] < 1050),
        (pc.field("dt") != "a", lambda r: r[0] != "a"),
        (pc.field(1) == 56, lambda r: r[1] == 56),
    ],
)
def test_a_filter_sees_merged_rows_only(store: TableStore, given: object, keep: object) -> None:
    expected = {row for row in EXPECTED if keep(row)}  # type: ignore[operator]
    assert rows(read(store, filter=given)) == expected
    only = read(store, filter=given, columns=["v"])
    assert only.column_names == ["v"]
    assert sorted(only.column("v").to_pylist()) == sorted(row[3] for row in expected)


def test_keys_and_partitions_prune_files_before_they_are_opened(store: TableStore) -> None:
    everything = plan_scan(store)
    assert sum(len(split.files) for split in plan_scan(store, filter=[("dt", "=", "b")]).splits) < sum(
        len(split.files) for split in everything.splits
    )
    first = plan_scan(store, filter=[("dt", "=", "a"), ("k", "=", 40)])
    assert len({split.bucket for split in first.splits}) == 1
    assert all(file.row_count > 1 for split in first.splits for file in split.files)  # the delete of 3 cannot hold 40
    assert plan_scan(store, filter=[("k", ">", 10_000)]).splits == ()
    assert plan_scan(store, filter=[("dt", "=", "zz")]).splits == ()


def test_partitions_are_chosen_whole_or_by_columns(store: TableStore) -> None:
    assert rows(read(store, partitions=[{"dt": "b"}])) == {row for row in EXPECTED if row[0] == "b"}
    assert rows(read(store, partitions=[{"dt": "a"}, {"dt": "b"}])) == EXPECTED
    assert read(store, partitions=[{"dt": None}]).num_rows == 0
    assert read(store, partitions=[]).num_rows == 0
    with pytest.raises(InvalidFilter, match="'k' is not a partition column"):
        plan_scan(store, partitions=[{"k": 1}])


def test_old_snapshots_are_read_as_they_were(store: TableStore) -> None:
    first = read(store, snapshot_id=1)
    assert rows(first) == {("a", k, f"s{k}", k) for k in range(50)} | {("b", k, None, k) for k in range(50, 60)}
    assert read(store, snapshot_id=2).num_rows == 60
    with pytest.raises(SnapshotNotFound):
        read(store, snapshot_id=9)


def test_limit_stops_early(store: TableStore) -> None:
    scan = plan_scan(store)
    assert to_arrow(store, scan, limit=7).num_rows == 7
    assert to_arrow(store, scan, limit=0).num_rows == 0
    assert to_arrow(store, scan, limit=10_000).num_rows == len(EXPECTED)


def test_splits_survive_the_way_to_another_process(store: TableStore) -> None:
    scan = plan_scan(store)
    sent = [Split.from_bytes(split.to_bytes()) for split in scan.splits]
    assert sent == list(scan.splits)
    assert pickle.loads(pickle.dumps(scan.splits)) == scan.splits
    other = pickle.loads(pickle.dumps(store))
    assert rows(pa.Table.from_batches(to_batches(other, scan, sent))) == EXPECTED


def test_splits_of_another_form_are_refused(store: TableStore) -> None:
    data = next(split.to_bytes() for split in plan_scan(store).splits if len(split.files) == 3)
    head, _, body = data.partition(b"\n")
    good = json.loads(head)
    (((runs, groups),)) = good["sections"]
    for changes in (
        {"version": 5},
        {"partition": "no hexadecimal digits"},
        {"sections": [[runs[1:], groups]]},
        {"sections": [[runs, [[place - 1 for place in group] for group in groups]]]},
        {"sections": [[runs]]},
        {"sections": [[[[str(place) for place in run] for run in runs], groups]]},
        {"deletions": {"a": ["index"]}},
        {"within": ["00"]},
    ):
        with pytest.raises(CorruptFile, match="<split>"):
            Split.from_bytes(b"%b\n%b" % (json.dumps({**good, **changes}).encode(), body))
    for broken in (b"{}\n{}", b"", head, data[:-8], head + b"\n" + bytes(len(body))):
        with pytest.raises(CorruptFile, match="<split>"):
            Split.from_bytes(broken)


def test_sections_of_a_plan_are_those_of_the_keys(store: TableStore) -> None:
    rng = np.random.default_rng(11)
    count = 300
    low = rng.integers(-40, 40, count)
    sides = [encode_rows([pa.array(side, pa.int32())], store.schema.trimmed_key_types) for side in (low, low + 3)]
    ends = zip(*(side.to_pylist() for side in sides), strict=True)
    none = SimpleStats(EMPTY_ROW, EMPTY_ROW)
    files = [
        DataFileMeta(f"f{n}", 1, 1, *ends_of, none, none, int(first), int(first) + 5, 0, int(level), (), int(created))
        for n, (ends_of, first, level, created) in enumerate(
            zip(ends, rng.integers(0, 9, count), rng.integers(0, 4, count), rng.integers(0, 2, count), strict=True)
        )
    ]
    (partition,) = encode_rows([pa.array(["a"])], store.schema.partition_types).to_pylist()
    entries = entries_to_table([ManifestEntry(ADD, partition, n % 7, 7, file) for n, file in enumerate(files)])
    splits = cut(store, entries, {})
    assert {split.bucket for split in splits if split.sections} == set(range(7))
    for split in splits:
        chosen = set(split.files)
        expected = () if split.raw else tuple(sections_of(store, [file for file in files if file in chosen]))
        assert split.sections == expected
        assert Split.from_bytes(split.to_bytes()) == split


def test_wrong_columns_are_named(store: TableStore) -> None:
    with pytest.raises(ColumnNotFound, match="'w'"):
        plan_scan(store, columns=["k", "w"])
    with pytest.raises(InvalidFilter, match="twice"):
        plan_scan(store, columns=["k", "k"])


def test_a_table_without_snapshots_is_empty(tmp_path: Path) -> None:
    empty = make_store(tmp_path / "e", FIELDS, ["dt", "k"], ["dt"], {"bucket": "1"})
    assert read(empty).num_rows == 0
    assert read(empty).schema == empty.schema.arrow_schema


def test_a_missing_or_cut_data_file_is_named(store: TableStore) -> None:
    scan = plan_scan(store)
    split = scan.splits[0]
    path = Path(store.data_path(split.partition, split.bucket, split.files[0]))
    content = path.read_bytes()
    path.write_bytes(content[:-10])
    with pytest.raises(CorruptFile, match=path.name):
        to_arrow(store, scan)
    path.unlink()
    with pytest.raises(CorruptFile, match=path.name):
        to_arrow(store, scan)


def test_after_a_full_compaction_splits_are_raw(store: TableStore) -> None:
    from lsm_core.commit import Committer
    from lsm_core.compact import run_bucket_task

    Committer(store).commit([run_bucket_task(store, task).message for task in full_tasks(store)])
    scan = plan_scan(store)
    assert all(split.raw for split in scan.splits)
    assert rows(to_arrow(store, scan)) == EXPECTED


def test_value_statistics_prune_append_files_only(tmp_path: Path) -> None:
    store = make_store(tmp_path / "a", {"p": "STRING", "v": "INT", "s": "STRING"}, (), ["p"], {"bucket": "-1"})
    for start in (0, 100, 200):
        write(store, pa.table({"p": ["x"] * 10, "v": range(start, start + 10), "s": [None] * 5 + ["text"] * 5}))
    scan = plan_scan(store, filter=[("v", ">=", 205)])
    assert [len(split.files) for split in scan.splits] == [1]
    assert sorted(to_arrow(store, scan).column("v").to_pylist()) == [205, 206, 207, 208, 209]
    assert read(store, filter=[("s", "is null")]).num_rows == 15
    assert read(store, filter=[("s", ">", "a")]).num_rows == 15
