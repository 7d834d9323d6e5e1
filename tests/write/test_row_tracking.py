"""Row tracking: every row has an id and the snapshot that wrote it, whatever rewrites its file; lost races leave no gap and no double."""

from __future__ import annotations

import random
from itertools import product
from pathlib import Path

import pyarrow as pa
import pytest

from lsm_core import Catalog, Schema, Table
from lsm_core.commit import CommitHooks, Committer, Phase
from lsm_core.compact import run_bucket_task
from lsm_core.errors import ColumnNotFound, InvalidOption, UnsupportedFeature
from lsm_core.format.manifest import SOURCE_COMPACT
from lsm_core.metadata import snapshots
from lsm_core.read import plan_scan
from lsm_core.table.system import SYSTEM_TABLES
from lsm_core.write import TableWrite
from tests.support.samples import one_in
from tests.support.stores import append_task, live_files, make_store, read, write

FIELDS = {"k": "INT", "s": "STRING"}
TRACKED = {"bucket": "-1", "row-tracking.enabled": "true"}
Story = dict[int, tuple[int, str, int]]
"""Row id: key, text, and the snapshot that said so last."""


def told(table: Table) -> Story:
    found = SYSTEM_TABLES["row_tracking"](table.store).to_pylist()
    story = {row["_ROW_ID"]: (row["k"], row["s"], row["_SEQUENCE_NUMBER"]) for row in found}
    assert len(story) == len(found)
    return story


def rows(keys: list[int]) -> pa.Table:
    return pa.table({"k": pa.array(keys, pa.int32()), "s": [f"s{key}" for key in keys]})


def made(tmp_path: Path, **options: str) -> Table:
    catalog = Catalog(tmp_path / "wh")
    catalog.create_database("db", ignore_if_exists=True)
    given = {key.replace("__", ".").replace("_", "-"): value for key, value in options.items()}
    schema = pa.schema([("k", pa.int32()), ("s", pa.string())])
    return catalog.create_table("db.t", Schema(schema, [], [], {**TRACKED, **given}))


@pytest.mark.parametrize(
    ("seed", "file_format", "vectors"),
    one_in(
        5,  # each format once
        (
            (seed, *kind)
            for seed, kind in product(
                range(6), (("parquet", "false"), ("orc", "false"), ("avro", "true"), ("parquet", "true"))
            )
        ),
    ),
)
def test_rows_keep_their_ids_through_every_kind_of_change(
    tmp_path: Path, seed: int, file_format: str, vectors: str
) -> None:
    rng = random.Random(seed)
    more = {"target_file_row_num": "7", "compaction__min__file_num": "2", "deletion_vectors__enabled": vectors}
    table = made(tmp_path, file__format=file_format, **more)
    story: Story = {}
    next_id = 0
    for step in range(14):
        before = snapshots.latest_id(table.store) or 0
        what = rng.choice(["write", "write", "write", "compact", "delete", "update", "sort"])
        picked = rng.sample(range(30), 4)
        if what == "write":
            keys = [rng.randrange(30) for _ in range(rng.randrange(1, 20))]
            table.write(rows(keys))
            story |= {next_id + i: (key, f"s{key}", before + 1) for i, key in enumerate(keys)}
            next_id += len(keys)
        elif what == "delete":
            table.delete([("k", "in", picked)])
            story = {i: row for i, row in story.items() if row[0] not in picked}
        elif what == "update":
            table.update([("k", "in", picked)], {"s": f"u{step}"})
            story = {i: (k, f"u{step}", before + 1) if k in picked else (k, s, n) for i, (k, s, n) in story.items()}
        elif what == "compact":
            table.compact(full=True)
        elif story:
            table.compact(order_by=["k"])
        assert told(table) == story, (step, what)
        snapshot = snapshots.latest(table.store)
        assert snapshot is None or snapshot.next_row_id == next_id


def test_ids_and_numbers_can_be_chosen_filtered_and_prune_files(tmp_path: Path) -> None:
    store = make_store(tmp_path, FIELDS, options=TRACKED)
    for first in (0, 10, 20):
        write(store, rows(list(range(first, first + 10))))
    assert read(store, columns=["_ROW_ID", "k"]).to_pydict() == {"_ROW_ID": [*range(30)], "k": [*range(30)]}
    assert read(store, columns=["k"], filter=[("_ROW_ID", "=", 14)]).column("k").to_pylist() == [14]
    assert read(store, filter=[("_SEQUENCE_NUMBER", ">", 2), ("k", "<", 22)]).to_pylist() == [
        {"k": 20, "s": "s20"},
        {"k": 21, "s": "s21"},
    ]
    assert read(store).column_names == ["k", "s"]
    with pytest.raises(ColumnNotFound):
        read(store, columns=["nobody"])
    (split,) = plan_scan(store, columns=["k"], filter=[("_ROW_ID", "=", 14)]).splits
    assert [file.first_row_id for file in split.files] == [10]
    (task,) = append_task(store)
    Committer(store).commit([run_bucket_task(store, task).message])
    for number in (0, 14, 29):
        assert read(store, columns=["k"], filter=[("_ROW_ID", "=", number)]).column("k").to_pylist() == [number]
    assert read(store, filter=[("_SEQUENCE_NUMBER", "=", 3)]).num_rows == 10


def test_a_rewritten_file_holds_both_columns_and_no_ids_of_its_own(tmp_path: Path) -> None:
    store = make_store(tmp_path, FIELDS, options=TRACKED)
    for first in (0, 10):
        write(store, rows(list(range(first, first + 10))))
    (task,) = append_task(store)
    Committer(store).commit([run_bucket_task(store, task).message])
    ((file,),) = live_files(store).values()
    assert (file.first_row_id, file.write_cols) == (None, ("k", "s", "_ROW_ID", "_SEQUENCE_NUMBER"))
    assert (file.min_sequence_number, file.max_sequence_number, file.file_source) == (1, 2, SOURCE_COMPACT)
    assert len(file.value_stats.null_counts) == 4


def test_the_loser_of_a_race_gets_the_numbers_of_its_own_snapshot(tmp_path: Path) -> None:
    store = make_store(tmp_path, FIELDS, options=TRACKED)
    write(store, rows([1, 2]))
    with TableWrite(store) as writer:
        writer.write(rows([3, 4, 5]))
        messages = writer.prepare_commit()
    lost: list[object] = []

    def interfere(phase: Phase, info: object) -> None:
        if phase is Phase.PUBLISH and len(lost) < 2:
            lost.append(info)
            write(store, rows([100 + len(lost)]))

    assert Committer(store, hooks=CommitHooks(interfere)).commit(messages).snapshot_id == 4
    found = read(store, columns=["k", "_ROW_ID", "_SEQUENCE_NUMBER"]).to_pylist()
    assert sorted((row["_ROW_ID"], row["k"], row["_SEQUENCE_NUMBER"]) for row in found) == [
        (0, 1, 1),
        (1, 2, 1),
        (2, 101, 2),
        (3, 102, 3),
        (4, 3, 4),
        (5, 4, 4),
        (6, 5, 4),
    ]
    manifests_there = {path.name for path in (tmp_path / "manifest").iterdir() if "list" not in path.name}
    assert len(manifests_there) == 4  # what lost its race is gone


def test_overwritten_rows_are_new_ones(tmp_path: Path) -> None:
    table = made(tmp_path)
    table.write(rows([1, 2, 3]))
    table.write(rows([7]), overwrite=True)
    assert told(table) == {3: (7, "s7", 2)}


def test_tables_without_tracking_have_no_such_columns(tmp_path: Path) -> None:
    store = make_store(tmp_path, FIELDS, options={"bucket": "-1"})
    write(store, rows([1]))
    with pytest.raises(ColumnNotFound):
        read(store, columns=["_ROW_ID"])
    with pytest.raises(UnsupportedFeature, match="row-tracking"):
        SYSTEM_TABLES["row_tracking"](store)


@pytest.mark.parametrize(("keys", "bucket"), [(["k"], "1"), (["k"], "-1"), ([], "2")])
def test_keys_and_buckets_cannot_be_tracked(tmp_path: Path, keys: list[str], bucket: str) -> None:
    catalog = Catalog(tmp_path / "wh")
    catalog.create_database("db")
    schema = pa.schema([pa.field("k", pa.int32(), nullable=False), pa.field("s", pa.string())])
    options = {"bucket": bucket, "row-tracking.enabled": "true", **({} if keys else {"bucket-key": "k"})}
    with pytest.raises(InvalidOption, match=r"row-tracking\.enabled"):
        catalog.create_table("db.t", Schema(schema, keys, [], options))
