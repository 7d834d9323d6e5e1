"""Index files come and go with commits: replaced by place or name, kept when unknown, lost with nothing else, and conflicts told."""

from __future__ import annotations

import copy
import io
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import fastavro
import numpy as np
import pytest

from lsm_core.commit import BATCH, CommitMessage, Committer, abort, attempt, committer
from lsm_core.commit.attempt import CommitHooks, Phase
from lsm_core.errors import CommitConflict, ConflictKind, UnsupportedFeature
from lsm_core.format.avro import write_records
from lsm_core.format.deletion_vector import DeletionVector, index_file
from lsm_core.format.index_sources import IndexSources
from lsm_core.format.manifest import (
    INDEX_MANIFEST,
    DataFileMeta,
    DeletionVectorRange,
    GlobalIndexMeta,
    IndexFileMeta,
    IndexManifestEntry,
    change_index_manifest,
    decode_index_manifest,
)
from lsm_core.format.snapshot import CommitKind
from lsm_core.metadata import manifests, snapshots
from lsm_core.metadata.store import TableStore
from tests.commit.tables import EMPTY, live_files, make_store, message, part, reopen, write_append, write_kv
from tests.support.index_sources import encode_sources


@pytest.fixture(autouse=True)
def _open_gate(monkeypatch: pytest.MonkeyPatch) -> None:
    """These tests are of the committer: whether a whole kind of table can be written is decided elsewhere."""
    monkeypatch.setattr(committer, "require_possible", lambda *_: None)
    monkeypatch.setattr(attempt, "require_supported", lambda *_: None)


def hashes(store: TableStore, *values: int) -> IndexFileMeta:
    """A new HASH index file with these hashes."""
    data = np.array(values, ">i4").tobytes()
    name = store.new_file_name("index-")
    with store.file_io.open_output(store.index_path(name)) as out:
        out.write(data)
    return IndexFileMeta("HASH", name, len(data), len(values))


def vectors(store: TableStore, deleted: Mapping[str, Sequence[int]]) -> IndexFileMeta:
    """A new index file with vectors of these data files."""
    data, ranges = index_file([DeletionVector.of(positions) for positions in deleted.values()])
    name = store.new_file_name("index-")
    with store.file_io.open_output(store.index_path(name)) as out:
        out.write(data)
    places = tuple(
        DeletionVectorRange(file, *place, len(positions))
        for (file, positions), place in zip(deleted.items(), ranges, strict=True)
    )
    return IndexFileMeta("DELETION_VECTORS", name, len(data), len(places), places)


def covering(level: int, files: Mapping[str, int]) -> IndexFileMeta:
    """A btree index file of a primary-key table, of data files with these rows."""
    sources = IndexSources(level, tuple(files.items()))
    meta = GlobalIndexMeta(0, sources.rows - 1, 2, None, b"\x01", encode_sources(sources))
    return IndexFileMeta("btree", f"index-{level}-{'-'.join(files)}", 9, sources.rows, global_index=meta)


def index_of(store: TableStore) -> dict[tuple[bytes, int, str], list[str]]:
    """Names of the latest snapshot's index files by partition, bucket and type."""
    found: dict[tuple[bytes, int, str], list[str]] = {}
    latest = snapshots.latest(store)
    assert latest is not None
    for entry in manifests.index_entries(store, latest):
        found.setdefault((entry.partition, entry.bucket, entry.index_type), []).append(entry.file_name)
    return found


def index_names(store: TableStore) -> set[str]:
    return {name for names in index_of(store).values() for name in names}


def files_in(store: TableStore) -> set[str]:
    return {status.path.rpartition("/")[2] for status in store.file_io.list_dir(f"{store.root}/index")}


def rows(store: TableStore, keys: list[int], first: int = 0, **more: Any) -> tuple[DataFileMeta, ...]:
    return write_kv(store, {"k": keys, "v": ["x"] * len(keys)}, first_sequence=first, **more)


def with_index(made: CommitMessage, **groups: Sequence[IndexFileMeta]) -> CommitMessage:
    return replace(made, **{name: tuple(files) for name, files in groups.items()})  # type: ignore[arg-type]


def test_a_message_with_index_files_comes_back_from_its_bytes(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    made = with_index(
        message(store, new_files=rows(store, [1])),
        new_index_files=[hashes(store, 1, 2)],
        deleted_index_files=[IndexFileMeta("HASH", "index-old", 4, 1, None, "file:/elsewhere/index-old")],
        compact_new_index_files=[vectors(store, {"a": [1, 70_000], "b": [0]}), covering(5, {"a": 3})],
        compact_deleted_index_files=[IndexFileMeta("DELETION_VECTORS", "index-v", 9, 0, ())],
    )
    assert CommitMessage.from_bytes(made.to_bytes()) == made
    assert not made.is_empty
    assert not with_index(message(store), new_index_files=made.new_index_files).is_empty
    assert [file.file_name for file in made.own_index_files()] == [
        made.new_index_files[0].file_name,
        *(file.file_name for file in made.compact_new_index_files),
    ]


def test_a_hash_index_replaces_the_one_it_was_made_from_and_others_stay(tmp_path: Path) -> None:
    store = make_store(tmp_path, options={"bucket": "2"})
    first, other = hashes(store, 1), hashes(store, 7)
    both = [
        with_index(message(store, new_files=rows(store, [1])), new_index_files=[first]),
        with_index(message(store, bucket=1, new_files=rows(store, [7], bucket=1)), new_index_files=[other]),
    ]
    Committer(store).commit(both)
    assert index_of(store) == {(EMPTY, 0, "HASH"): [first.file_name], (EMPTY, 1, "HASH"): [other.file_name]}
    more = hashes(store, 1, 2)
    change = message(store, new_files=rows(store, [2], 1))
    Committer(store).commit([with_index(change, new_index_files=[more], deleted_index_files=[first])])
    assert index_of(store) == {(EMPTY, 0, "HASH"): [more.file_name], (EMPTY, 1, "HASH"): [other.file_name]}
    kinds = [snapshots.read(store, number).commit_kind for number in snapshots.list_ids(store)]
    assert kinds == [CommitKind.APPEND, CommitKind.APPEND]
    # A commit without index changes carries the manifest along, name and all.
    before = snapshots.latest(store)
    Committer(store).commit([message(store, new_files=rows(store, [3], 2))])
    after = snapshots.latest(store)
    assert before is not None
    assert after is not None
    assert after.index_manifest == before.index_manifest


def test_two_commits_that_change_one_hash_index_conflict_and_a_retry_sees_other_buckets(tmp_path: Path) -> None:
    store = make_store(tmp_path, options={"bucket": "2"})
    old = hashes(store, 1)
    Committer(store).commit([with_index(message(store, new_files=rows(store, [1])), new_index_files=[old])])
    other_bucket, mine, theirs = hashes(store, 9), hashes(store, 1, 2), hashes(store, 1, 3)
    ours = with_index(message(store, new_files=rows(store, [2], 1)), new_index_files=[mine], deleted_index_files=[old])
    again = []

    def interfere(phase: Phase, info: Mapping[str, object]) -> None:
        if phase is Phase.PUBLISH and not again:
            again.append(info["attempt"])
            change = message(store, bucket=1, new_files=rows(store, [9], bucket=1))
            Committer(reopen(tmp_path)).commit([with_index(change, new_index_files=[other_bucket])])

    Committer(store, hooks=CommitHooks(interfere)).commit([ours])
    assert again == [0]
    assert index_of(store) == {(EMPTY, 0, "HASH"): [mine.file_name], (EMPTY, 1, "HASH"): [other_bucket.file_name]}
    late = with_index(
        message(store, new_files=rows(store, [3], 1)), new_index_files=[theirs], deleted_index_files=[old]
    )
    with pytest.raises(CommitConflict, match="another commit replaced index files") as failed:
        Committer(store).commit([late])
    assert failed.value.kind is ConflictKind.INDEX_CHANGED
    assert failed.value.files == (old.file_name,)
    blind = replace(late, deleted_index_files=())
    with pytest.raises(CommitConflict, match="another index file") as failed:
        Committer(store).commit([blind])
    assert failed.value.kind is ConflictKind.INDEX_CHANGED
    assert mine.file_name in failed.value.files
    assert abort(store, [late])
    assert theirs.file_name not in files_in(store)
    assert abort(store, [ours]) == []
    assert {mine.file_name, other_bucket.file_name} <= files_in(store)


def test_overwriting_and_dropping_take_a_partitions_index_files_of_every_type(tmp_path: Path) -> None:
    fields = {"p": "INT NOT NULL", "k": "BIGINT NOT NULL", "v": "STRING"}
    store = make_store(tmp_path, fields, primary_keys=("p", "k"), partition_keys=("p",))
    first, two = part(store, p=1), part(store, p=2)
    files = [hashes(store, 1), hashes(store, 2)]
    messages = [
        with_index(message(store, partition=where, new_files=written(store, where)), new_index_files=[file])
        for where, file in ((first, files[0]), (two, files[1]))
    ]
    Committer(store).commit(messages)
    new = hashes(store, 5)
    change = with_index(message(store, partition=first, new_files=written(store, first)), new_index_files=[new])
    Committer(store).overwrite([change])
    assert index_of(store) == {(first, 0, "HASH"): [new.file_name], (two, 0, "HASH"): [files[1].file_name]}
    Committer(store).drop([{"p": 2}])
    assert index_of(store) == {(first, 0, "HASH"): [new.file_name]}
    Committer(store).drop(None)
    latest = snapshots.latest(store)
    assert latest is not None
    assert latest.index_manifest is None


def written(store: TableStore, partition: bytes) -> tuple[DataFileMeta, ...]:
    return write_kv(store, {"p": [1], "k": [1], "v": ["x"]}, partition=partition)


def test_vectors_of_an_append_table_are_checked_against_its_files(tmp_path: Path) -> None:
    store = make_store(tmp_path, {"k": "BIGINT", "v": "STRING"}, primary_keys=())
    (a,), (b,) = (write_append(store, {"k": [1, 2, 3], "v": ["x"] * 3}) for _ in range(2))
    Committer(store).commit([message(store, new_files=[a, b])])
    on_a = vectors(store, {a.file_name: [0]})
    Committer(store, "me").commit([with_index(message(store), new_index_files=[on_a])])
    latest = snapshots.latest(store)
    assert latest is not None
    assert latest.commit_kind is CommitKind.OVERWRITE
    assert latest.delta_record_count == 0
    # Tables without buckets may have several files of vectors, but a data file has one vector.
    on_b = vectors(store, {b.file_name: [1]})
    Committer(store).commit([with_index(message(store), new_index_files=[on_b])])
    assert set(index_of(store)[EMPTY, 0, "DELETION_VECTORS"]) == {on_a.file_name, on_b.file_name}
    again = vectors(store, {a.file_name: [0, 2]})
    with pytest.raises(CommitConflict, match="another commit deleted rows of the same file") as failed:
        Committer(store).commit([with_index(message(store), new_index_files=[again])])
    assert failed.value.kind is ConflictKind.INDEX_CHANGED
    # A compaction that did not see the vector would bring its rows back.
    (merged,) = write_append(store, {"k": [1, 2, 3], "v": ["x"] * 3})
    compaction = message(store, compact_before=[a], compact_after=[merged])
    with pytest.raises(CommitConflict, match="rows of a file that is to be replaced were deleted") as failed:
        Committer(store).commit([compaction])
    assert failed.value.kind is ConflictKind.INDEX_CHANGED
    assert failed.value.files == (a.file_name,)
    Committer(store).commit([with_index(compaction, compact_deleted_index_files=[on_a])])
    assert index_names(store) == {on_b.file_name}
    with pytest.raises(CommitConflict, match=r"files whose rows are to be deleted.*were removed") as failed:
        Committer(store).commit([with_index(message(store), new_index_files=[again])])
    assert failed.value.kind is ConflictKind.INPUTS_GONE
    assert failed.value.files == (a.file_name,)


def test_a_commit_of_vectors_alone_is_recognised_when_it_is_asked_again(tmp_path: Path) -> None:
    store = make_store(tmp_path, {"k": "BIGINT", "v": "STRING"}, primary_keys=())
    (a,) = write_append(store, {"k": [1, 2, 3], "v": ["x"] * 3})
    Committer(store).commit([message(store, new_files=[a])])
    first, second = vectors(store, {a.file_name: [0]}), vectors(store, {a.file_name: [0, 1]})
    made = with_index(message(store), new_index_files=[first])
    following = with_index(message(store), new_index_files=[second], deleted_index_files=[first])
    assert Committer(store, "me").commit([made]).snapshot_ids == [2]
    assert Committer(store, "me").commit([following]).snapshot_ids == [3]
    assert Committer(store, "me").commit([made], commit_identifier=BATCH).snapshot_ids == [2]
    assert Committer(store, "me").commit([following]).snapshot_ids == [3]
    assert snapshots.latest_id(store) == 3


def test_an_upgraded_file_keeps_its_vector_and_a_bucket_has_one_file_of_vectors(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    (low,) = rows(store, [1, 2, 3], level=4)
    Committer(store).commit([message(store, new_files=[low])])
    vector = vectors(store, {low.file_name: [1]})
    Committer(store).commit([with_index(message(store), compact_new_index_files=[vector])])
    latest = snapshots.latest(store)
    assert latest is not None
    assert latest.commit_kind is CommitKind.COMPACT
    Committer(store).commit([message(store, compact_before=[low], compact_after=[replace(low, level=5)])])
    assert [file.level for _, _, file in live_files(store)] == [5]
    assert index_names(store) == {vector.file_name}
    (more,) = rows(store, [7, 8], 3, level=3)
    second = vectors(store, {more.file_name: [0]})
    change = message(store, compact_after=[more])
    with pytest.raises(CommitConflict, match="another index file"):
        Committer(store).commit([with_index(change, compact_new_index_files=[second])])


def test_nothing_stays_behind_when_a_commit_with_index_changes_fails(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    before = {path for path in tmp_path.rglob("*") if path.is_file()}
    made = with_index(message(store, new_files=rows(store, [1])), new_index_files=[hashes(store, 1)])

    def crash(phase: Phase, _: Mapping[str, object]) -> None:
        if phase is Phase.PUBLISH:
            raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        Committer(store, hooks=CommitHooks(crash)).commit([made])
    abort(store, [made])
    assert {path for path in tmp_path.rglob("*") if path.is_file()} == before


def test_indexes_of_replaced_data_files_are_removed_and_others_stay(tmp_path: Path) -> None:
    store = make_store(tmp_path, options={"bucket": "2"})
    first, second, other = (
        rows(store, [key], place, level=5, source=1, bucket=bucket)
        for place, (key, bucket) in enumerate(((1, 0), (9, 0), (7, 1)))
    )
    named = {file.file_name: file.row_count for file in (*first, *second)}
    mine, theirs = covering(5, named), covering(5, {other[0].file_name: 1})
    level_4 = covering(4, {"of-no-file": 1})
    Committer(store).commit(
        [
            with_index(message(store, compact_after=[*first, *second]), compact_new_index_files=[mine, level_4]),
            with_index(message(store, bucket=1, compact_after=other), compact_new_index_files=[theirs]),
        ]
    )
    everything = {mine.file_name, theirs.file_name, level_4.file_name}
    assert index_names(store) == everything
    entries = manifests.index_entries(store, snapshots.latest(store))  # type: ignore[arg-type]
    assert {entry.file for entry in entries} == {mine, theirs, level_4}
    added = rows(store, [2], 3)
    Committer(store).commit([message(store, new_files=added)])
    assert index_names(store) == everything
    new = rows(store, [1, 2], 4, level=4, source=1)
    Committer(store).commit([message(store, compact_before=added, compact_after=new)])
    assert index_names(store) == {mine.file_name, theirs.file_name}, "level 4 has a file that its index does not name"
    Committer(store).commit([message(store, compact_before=first, compact_after=[first[0].upgrade(3)])])
    assert index_names(store) == {theirs.file_name}


# -- what is not understood stays --------------------------------------------------------------------------------------

_LATER_FIELDS = [
    {
        "name": "_GLOBAL_INDEX",
        "default": None,
        "type": [
            "null",
            {
                "type": "record",
                "name": "org.apache.paimon.avro.generated.record__GLOBAL_INDEX",
                "fields": [
                    {"name": "_ROW_RANGE_START", "type": "long"},
                    {"name": "_EXTRA_FIELD_IDS", "type": ["null", {"type": "array", "items": "int"}], "default": None},
                    {"name": "_INDEX_META", "type": ["null", "bytes"], "default": None},
                ],
            },
        ],
    },
    {"name": "_OF_A_LATER_VERSION", "type": ["null", "string"], "default": None},
]


def _later(fields: list[dict[str, Any]]) -> dict[str, Any]:
    schema = copy.deepcopy(INDEX_MANIFEST)
    return {**schema, "fields": [*schema["fields"], *copy.deepcopy(fields)]}


def _foreign_records() -> list[dict[str, Any]]:
    base = {"_VERSION": 1, "_KIND": 0, "_PARTITION": EMPTY, "_BUCKET": 0, "_FILE_SIZE": 5, "_ROW_COUNT": 1}
    ranges = [{"f0": "data-1", "f1": 1, "f2": 22, "_CARDINALITY": None}]
    known: dict[str, Any] = {"_DELETIONS_VECTORS_RANGES": None, "_EXTERNAL_PATH": None}
    inside = {"_ROW_RANGE_START": 5, "_EXTRA_FIELD_IDS": [1, 2], "_INDEX_META": b"\0\1"}
    return [
        {
            **base,
            **known,
            "_INDEX_TYPE": "btree",
            "_FILE_NAME": "g",
            "_GLOBAL_INDEX": inside,
            "_OF_A_LATER_VERSION": "x",
        },
        {**base, "_INDEX_TYPE": "DELETION_VECTORS", "_FILE_NAME": "v", "_DELETIONS_VECTORS_RANGES": ranges}
        | {"_EXTERNAL_PATH": "file:/x", "_GLOBAL_INDEX": None, "_OF_A_LATER_VERSION": None},
    ]


def test_fields_of_later_versions_survive_a_rewrite_of_the_index_manifest() -> None:
    records = _foreign_records()
    data = write_records(_later(_LATER_FIELDS), records)
    added = IndexManifestEntry(0, EMPTY, 3, "HASH", "new", 8, 2)
    again = change_index_manifest(data, "m", [True, True], [added])
    theirs = list(fastavro.reader(io.BytesIO(again)))
    assert theirs[:2] == records
    assert decode_index_manifest(again, "m")[2] == added
    assert list(fastavro.reader(io.BytesIO(change_index_manifest(data, "m", [True, False], [])))) == records[:1]


def test_an_older_index_manifest_gets_the_fields_that_new_entries_need() -> None:
    old = copy.deepcopy(INDEX_MANIFEST)
    old["fields"] = [field for field in old["fields"] if field["name"] != "_EXTERNAL_PATH"]
    inside = old["fields"][-1]["type"][1]["items"][1]
    inside["fields"] = [field for field in inside["fields"] if field["name"] != "_CARDINALITY"]
    ranges = [{"f0": "data-1", "f1": 1, "f2": 22}]
    record = {key: value for key, value in _foreign_records()[1].items() if not key.startswith(("_EXT", "_GLO", "_OF"))}
    data = write_records(old, [{**record, "_DELETIONS_VECTORS_RANGES": ranges}])
    (entry,) = decode_index_manifest(data, "m")
    added = replace(entry, file_name="w", deletion_vectors=(DeletionVectorRange("data-2", 1, 22, 9),))
    assert decode_index_manifest(change_index_manifest(data, "m", [True], [added]), "m") == [entry, added]


def test_a_field_that_would_not_come_back_as_it_was_refuses_the_rewrite() -> None:
    required = [{"name": "_NEEDED", "type": "string"}]
    record = {**_foreign_records()[1], "_NEEDED": "y"}
    data = write_records(_later(required), [record])
    assert decode_index_manifest(change_index_manifest(data, "the/path", [True], []), "m")[0].file_name == "v"
    with pytest.raises(UnsupportedFeature, match="the/path"):
        change_index_manifest(data, "the/path", [True], [IndexManifestEntry(0, EMPTY, 3, "HASH", "new", 8, 2)])


def test_unknown_entries_outlive_commits_that_change_others(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    Committer(store).commit(
        [with_index(message(store, new_files=rows(store, [1])), new_index_files=[hashes(store, 1)])]
    )
    latest = snapshots.latest(store)
    assert latest is not None
    assert latest.index_manifest is not None
    path = Path(store.manifest_path(latest.index_manifest))
    mine = list(fastavro.reader(io.BytesIO(path.read_bytes())))
    empty = {"_GLOBAL_INDEX": None, "_OF_A_LATER_VERSION": None}
    path.write_bytes(write_records(_later(_LATER_FIELDS), [*({**row, **empty} for row in mine), _foreign_records()[0]]))
    (old,) = [entry.file for entry in manifests.index_entries(store, latest) if entry.index_type == "HASH"]
    new = hashes(store, 1, 2)
    change = message(store, new_files=rows(store, [2], 1))
    Committer(store).commit([with_index(change, new_index_files=[new], deleted_index_files=[old])])
    after = snapshots.latest(store)
    assert after is not None
    assert after.index_manifest is not None
    kept = list(fastavro.reader(io.BytesIO(Path(store.manifest_path(after.index_manifest)).read_bytes())))
    assert [row for row in kept if row["_FILE_NAME"] == "g"] == _foreign_records()[:1]
    assert index_of(store)[EMPTY, 0, "HASH"] == [new.file_name]
