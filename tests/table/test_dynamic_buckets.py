"""Tables of dynamic buckets: a key keeps its bucket through whatever happens to the table, and where it cannot, nothing is committed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lsm_core import Catalog, Schema, Table
from lsm_core.commit import CommitMessage, abort
from lsm_core.errors import CommitConflict, ConflictKind, CorruptFile, InvalidOption
from lsm_core.metadata import manifests, snapshots
from lsm_core.metadata.indexes import hash_index, index_file_path
from lsm_core.metadata.store import BucketMode
from lsm_core.read import read_split
from lsm_core.write.bucket import key_hashes
from tests.support.stores import live_files

FIELDS = pa.schema(
    [pa.field("p", pa.string(), nullable=False), pa.field("k", pa.int64(), nullable=False), ("v", pa.int64())]
)
Make = Callable[..., Table]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """A new table of 8 keys a bucket."""
    catalog = Catalog(str(tmp_path))
    catalog.create_database("db")

    def create(partitioned: bool = True, **options: str) -> Table:
        given = {
            "dynamic-bucket.target-row-num": "8",
            **{key.replace("_", "-"): value for key, value in options.items()},
        }
        keys = ["p", "k"] if partitioned else ["k"]
        return catalog.create_table("db.t", Schema(FIELDS, keys, ["p"] if partitioned else [], given))

    return create


def rows(keys: Any, value: int = 0, partition: str = "a") -> pa.Table:
    found = np.asarray(list(keys), np.int64)
    return pa.table(
        [pa.array([partition] * len(found)), pa.array(found), pa.array(np.full(len(found), value))], schema=FIELDS
    )


def content(table: Table, **scan: Any) -> dict[tuple[str, int], int]:
    found = table.to_arrow(**scan).to_pylist()
    assert len({(row["p"], row["k"]) for row in found}) == len(found)
    return {(row["p"], row["k"]): row["v"] for row in found}


def places(table: Table) -> dict[tuple[str, int], int]:
    """The bucket of every key, from the files; each key is in one."""
    found: dict[tuple[str, int], int] = {}
    for _, bucket, batch in merged(table):
        for row in batch.to_pylist():
            assert (row["p"], row["k"]) not in found
            found[row["p"], row["k"]] = bucket
    return found


def merged(table: Table) -> Iterator[tuple[bytes, int, pa.RecordBatch]]:
    """The rows of every bucket by itself."""
    for split in table.plan_scan():
        for batch in read_split(table.store, split, FIELDS.names):
            yield split.partition, split.bucket, batch


def indexed(table: Table) -> dict[tuple[bytes, int], set[int]]:
    """The hashes in each bucket's index at the newest snapshot."""
    snapshot = snapshots.latest(table.store)
    assert snapshot is not None
    return {
        (entry.partition, entry.bucket): set(hash_index(table.store, entry).tolist())
        for entry in manifests.index_entries(table.store, snapshot)
    }


def check_index(table: Table) -> None:
    """Each bucket's index holds the hashes of its keys."""
    known = indexed(table)
    for partition, bucket, batch in merged(table):
        assert set(key_hashes(table.store, batch).tolist()) <= known[partition, bucket]


def test_a_table_with_a_key_and_no_bucket_option_has_dynamic_buckets(make: Make) -> None:
    table = make()
    assert table.store.bucket_mode is BucketMode.DYNAMIC
    table.write(pa.concat_tables([rows(range(20)), rows(range(5), partition="b")]))
    assert sorted(live_files(table.store)) == sorted((p, b) for p, b in indexed(table))
    assert [places(table)["a", k] for k in range(20)] == [k // 8 for k in range(20)]
    check_index(table)


def test_a_known_key_keeps_its_bucket_and_new_ones_fill_those_with_room(make: Make) -> None:
    table = make()
    table.write(rows(range(12)))
    before = places(table)
    table.write(rows([30, 3, 11, 31, 32, 33, 34], 1))
    after = places(table)
    assert {key: after[key] for key in before} == before
    assert [after["a", k] for k in (30, 31, 32, 33, 34)] == [1, 1, 1, 1, 2]
    assert content(table)["a", 3] == 1
    check_index(table)


def test_only_buckets_with_new_keys_get_a_new_index_file(make: Make) -> None:
    table = make()
    table.write(rows(range(12)))
    first = snapshots.latest(table.store)
    table.write(rows(range(12), 1))
    again = snapshots.latest(table.store)
    assert first is not None and again is not None
    assert again.index_manifest == first.index_manifest
    table.write(rows([100]))
    last = snapshots.latest(table.store)
    assert last is not None
    names = [
        {entry.bucket: entry.file_name for entry in manifests.index_entries(table.store, item)}
        for item in (first, last)
    ]
    assert names[0][0] == names[1][0] and names[0][1] != names[1][1]


def test_max_buckets_are_kept_and_keys_beyond_go_to_the_same_bucket_again(make: Make) -> None:
    table = make(**{"dynamic-bucket.max-buckets": "2"})
    for value in range(3):
        table.write(rows(range(40), value))
        assert set(places(table).values()) == {0, 1}
    assert content(table) == {("a", k): 2 for k in range(40)}


def test_an_overwrite_starts_from_an_empty_index_and_leaves_other_partitions_alone(make: Make) -> None:
    table = make()
    table.write(pa.concat_tables([rows(range(20)), rows(range(20), partition="b")]))
    kept = {place: found for place, found in indexed(table).items() if b"b" in place[0]}
    table.write(rows(range(12, 16), 1), overwrite=True)
    assert {place: found for place, found in indexed(table).items() if b"b" in place[0]} == kept
    assert {key: bucket for key, bucket in places(table).items() if key[0] == "a"} == {
        ("a", k): 0 for k in range(12, 16)
    }
    table.write(rows([0, 12]))
    assert places(table)["a", 0] == 0
    check_index(table)


def test_a_dropped_partition_takes_its_index_along(make: Make) -> None:
    table = make()
    table.write(pa.concat_tables([rows(range(20)), rows(range(20), partition="b")]))
    table.drop_partitions([{"p": "a"}])
    assert all(b"b" in partition for partition, _ in indexed(table))
    table.write(rows([19], 5))
    assert places(table)["a", 19] == 0 and content(table)["a", 19] == 5
    check_index(table)


def test_expiry_and_sweep_leave_the_index_files_in_use_and_no_other(make: Make, tmp_path: Path) -> None:
    table = make(write_only="true")
    for value in range(5):
        table.write(rows(range(value * 5, value * 5 + 8), value))
    table.compact(full=True)
    clock = Catalog(str(tmp_path), clock="fixed:4000000000000").table("db.t")
    clock.expire_snapshots(retain_max=1, retain_min=1)
    clock.store.clock.advance(10**9)  # type: ignore[attr-defined]
    clock.sweep_trash()
    snapshot = snapshots.latest(table.store)
    assert snapshot is not None
    named = {entry.file_name for entry in manifests.index_entries(table.store, snapshot)}
    assert {path.name for path in (tmp_path / "db.db" / "t" / "index").iterdir()} == named
    table.write(rows(range(0, 40, 3), 9))
    assert len(content(table)) == len(set(range(28)) | set(range(0, 40, 3)))


@pytest.mark.parametrize("full", [True, False])
def test_compaction_keeps_every_key_in_its_bucket(make: Make, full: bool) -> None:
    table = make()
    for value in range(6):
        table.write(rows(range(value, value + 20), value))
    before, index = content(table), indexed(table)
    where = places(table)
    assert table.compact(full=full).snapshot_id is not None
    assert (content(table), indexed(table), places(table)) == (before, index, where)
    table.verify(1, table.latest_snapshot().id)  # type: ignore[union-attr]
    table.write(rows(range(3, 9), 77))
    assert {bucket for (_, k), bucket in places(table).items() if k < 8} == {0}


def test_keys_are_looked_up_and_explained_in_whichever_bucket_they_are(make: Make) -> None:
    table = make()
    for value in range(3):
        table.write(rows(range(30), value))
    found = table.lookup(pa.table({"p": ["a", "a", "a"], "k": [0, 17, 99]}))
    assert [(row["k"], row["v"]) for row in found.to_pylist()] == [(0, 2), (17, 2)]
    story = table.explain_row({"p": "a", "k": 17})
    assert len(story.versions) == 3 and story.answer == {"p": "a", "k": 17, "v": 2}


def test_statements_change_rows_where_they_are(make: Make) -> None:
    table = make()
    table.write(rows(range(30)))
    where = places(table)
    table.delete([("k", ">=", 25)])
    table.update([("k", "<", 3)], {"v": 5})
    assert content(table) == {("a", k): 5 if k < 3 else 0 for k in range(25)}
    table.write(rows(range(30), 8))
    assert places(table) == where


def prepared(table: Table, data: pa.Table) -> list[CommitMessage]:
    with table.new_write() as writer:
        writer.write(data)
        return writer.prepare_commit()


@pytest.mark.parametrize("second", [[5], [40], [1]])
def test_two_writers_that_read_one_index_are_found_at_commit(make: Make, tmp_path: Path, second: list[int]) -> None:
    table = make()
    table.write(rows(range(4)))
    ours, theirs = prepared(table, rows(second, 1)), prepared(table, rows([40, 41], 2))
    table.new_commit().commit(theirs)
    index = tmp_path / "db.db" / "t" / "index"
    with pytest.raises(CommitConflict, match=r"table db\.t: .*partition p=a.*a key could lie in two of them") as caught:
        table.new_commit().commit(ours)
    assert caught.value.kind is ConflictKind.INDEX_CHANGED
    named = {entry.file_name for s in table.snapshots() for entry in manifests.index_entries(table.store, s)}
    assert {path.name for path in index.iterdir()} == named
    assert content(table) == {("a", k): 0 for k in range(4)} | {("a", 40): 2, ("a", 41): 2}


def test_writers_of_different_partitions_do_not_meet(make: Make) -> None:
    table = make()
    ours, theirs = prepared(table, rows([1])), prepared(table, rows([1], partition="b"))
    table.new_commit().commit(theirs)
    table.new_commit().commit(ours)
    assert content(table) == {("a", 1): 0, ("b", 1): 0}


def test_messages_keep_their_index_files_on_the_wire_and_an_abort_deletes_them(make: Make, tmp_path: Path) -> None:
    table = make()
    messages = [CommitMessage.from_bytes(m.to_bytes()) for m in prepared(table, rows(range(20)))]
    index = tmp_path / "db.db" / "t" / "index"
    assert sum(file.row_count for m in messages for file in m.new_index_files) == 20
    assert len(list(index.iterdir())) == 3
    abort(table.store, messages)
    assert list(index.iterdir()) == []


def test_a_long_lived_writer_keeps_its_keys_in_place_over_many_commits(make: Make) -> None:
    table = make(**{"num-sorted-run.compaction-trigger": "3"})
    commit = table.new_stream_commit("job")
    expected: dict[tuple[str, int], int] = {}
    with table.new_stream_write("job") as writer:
        for number in range(10):
            keys = range(5 * number, 5 * number + 17)
            writer.write(rows(keys, number, "ab"[number % 2]))
            expected |= {("ab"[number % 2], k): number for k in keys}
            messages = writer.prepare_commit(wait_compaction=number % 3 == 0, commit_identifier=number)
            commit.filter_and_commit({number: messages})
            places(table)
    assert content(table) == expected
    check_index(table)


def test_a_long_lived_writer_takes_in_what_others_added_to_the_index_and_conflicts_over_rows_it_held(
    make: Make,
) -> None:
    table = make()
    commit = table.new_stream_commit("job")
    with table.new_stream_write("job") as writer:
        writer.write(rows(range(5)))
        commit.filter_and_commit({0: writer.prepare_commit(commit_identifier=0)})
        table.write(rows(range(5, 12), 1))
        writer.write(rows(range(9, 14), 2))
        with pytest.raises(CommitConflict, match="hash index"):
            commit.filter_and_commit({1: writer.prepare_commit(commit_identifier=1)})
    with table.new_stream_write("job") as writer:
        writer.write(rows(range(9, 14), 2))
        commit.filter_and_commit({1: writer.prepare_commit(commit_identifier=1)})
        table.write(rows([50], 3))
        assert writer.prepare_commit(commit_identifier=2) == []  # looks at the table
        writer.write(rows([50, 51], 4))
        commit.filter_and_commit({3: writer.prepare_commit(commit_identifier=3)})
    assert content(table) == {("a", k): 0 if k < 5 else 1 if k < 9 else 2 for k in range(14)} | {
        ("a", 50): 4,
        ("a", 51): 4,
    }
    places(table)


def _spoilt(table: Table, how: Callable[[Path], None]) -> str:
    snapshot = snapshots.latest(table.store)
    assert snapshot is not None
    path = index_file_path(table.store, manifests.index_entries(table.store, snapshot)[0])
    how(Path(path))
    return path


def _short(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-2])


HOSTILE: Mapping[str, Callable[[Path], None]] = {
    "missing": Path.unlink,
    "short": _short,
    "empty": lambda path: path.write_bytes(b"") and None,
}


@pytest.mark.parametrize("how", HOSTILE)
def test_a_broken_index_file_stops_the_write_and_is_named(make: Make, how: str) -> None:
    table = make()
    table.write(rows(range(6)))
    path = _spoilt(table, HOSTILE[how])
    before = table.latest_snapshot()
    with pytest.raises(CorruptFile) as caught:
        table.write(rows([9]))
    assert caught.value.path == path
    assert table.latest_snapshot() == before
    assert content(table) == {("a", k): 0 for k in range(6)}


def test_a_bucket_with_files_and_no_index_is_named(make: Make, tmp_path: Path) -> None:
    table = make()
    table.write(rows(range(6)))
    snapshot = snapshots.latest(table.store)
    assert snapshot is not None
    path = Path(table.store.snapshot_path(snapshot.id))
    path.write_bytes(path.read_bytes().replace(b'"indexManifest"', b'"noIndexManifest"'))
    with pytest.raises(CorruptFile, match=r"table db\.t: no hash index of partition p=a, bucket 0, which holds files"):
        Catalog(str(tmp_path)).table("db.t").write(rows([9]))


def test_a_target_of_no_rows_is_refused_naming_option_and_table(make: Make) -> None:
    with pytest.raises(InvalidOption, match=r"dynamic-bucket\.target-row-num' of table db\.t cannot be '0'"):
        make(**{"dynamic-bucket.target-row-num": "0"})
    with pytest.raises(InvalidOption, match=r"dynamic-bucket\.max-buckets' of table db\.t cannot be 0"):
        make(**{"dynamic-bucket.max-buckets": "0"})
    table = make()
    with pytest.raises(InvalidOption, match=r"dynamic-bucket\.target-row-num' of table db\.t cannot be '0'"):
        table.copy({"dynamic-bucket.target-row-num": "0"}).write(rows([1]))


def test_a_table_without_partitions_is_one_index(make: Make) -> None:
    table = make(partitioned=False)
    table.write(rows(range(20)))
    table.write(rows(range(15, 30), 1))
    assert {k: b for (_, k), b in places(table).items()} == {k: k // 8 for k in range(30)}
    check_index(table)
