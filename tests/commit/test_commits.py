"""One committer: what a snapshot says, what an empty commit does, overwrites, identifiers, and messages as bytes."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsm_core.clock import FixedClock
from lsm_core.commit import BATCH, CommitMessage, Committer, Origin, abort
from lsm_core.errors import ColumnNotFound, CommitConflict, CorruptFile, InvalidData, UnsupportedFeature
from lsm_core.files import KeyValueFileWriter
from lsm_core.format.manifest import DataFileMeta
from lsm_core.format.snapshot import CommitKind
from lsm_core.format.stats import SimpleStats
from lsm_core.metadata import manifests, snapshots
from lsm_core.metadata.store import TableStore
from tests.commit.tables import (
    EMPTY,
    NOON,
    content,
    kv_batch,
    live_files,
    make_store,
    message,
    part,
    reopen,
    stray_files,
    write_append,
    write_kv,
)

PARTITIONED = {"dt": "DATE NOT NULL", "h": "INT NOT NULL", "v": "STRING"}


def rows(store: TableStore, keys: list[int], value: str, first: int = 0, **more: Any) -> CommitMessage:
    return message(
        store, new_files=write_kv(store, {"k": keys, "v": [value] * len(keys)}, first_sequence=first, **more)
    )


def test_a_first_commit_writes_a_whole_snapshot(tmp_path: Path) -> None:
    store = make_store(tmp_path, clock=FixedClock(NOON + 5))
    result = Committer(store, "me").commit([rows(store, [1, 2], "a")], watermark=77, properties={"p": "q"})
    assert result.snapshot_ids == [1]
    snapshot = snapshots.latest(store)
    assert snapshot is not None
    assert (snapshot.id, snapshot.version, snapshot.schema_id) == (1, 3, 0)
    assert (snapshot.commit_user, snapshot.commit_identifier, snapshot.commit_kind) == ("me", BATCH, CommitKind.APPEND)
    assert (snapshot.total_record_count, snapshot.delta_record_count) == (2, 2)
    assert (snapshot.time_millis, snapshot.watermark, snapshot.properties, snapshot.next_row_id) == (
        NOON + 5,
        77,
        {"p": "q"},
        0,
    )
    for name, size in (
        (snapshot.base_manifest_list, snapshot.base_manifest_list_size),
        (snapshot.delta_manifest_list, snapshot.delta_manifest_list_size),
    ):
        assert size == (tmp_path / "manifest" / name).stat().st_size
    assert manifests.read_list(store, snapshot.base_manifest_list) == []
    assert {p.name: p.read_text() for p in (tmp_path / "snapshot").iterdir() if p.name.isupper()} == {
        "LATEST": "1",
        "EARLIEST": "1",
    }
    assert content(store) == [(1, "a"), (2, "a")]
    assert stray_files(store) == set()


def test_counters_and_hints_follow_the_commits(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    Committer(store).commit([rows(store, [1, 2, 3], "a")], watermark=50)
    Committer(store).commit([rows(store, [2], "b", 3)], watermark=40)
    first, second = live_files(store)
    merged = write_kv(store, {"k": [1, 2, 3], "v": ["a", "b", "a"]}, level=5, source=1)
    result = Committer(store).commit([message(store, compact_before=[first[2], second[2]], compact_after=merged)])
    assert result.snapshot_ids == [3]
    found = [snapshots.read(store, i) for i in (1, 2, 3)]
    assert [s.total_record_count for s in found] == [3, 4, 3]
    assert [s.delta_record_count for s in found] == [3, 1, -1]
    assert [s.commit_kind for s in found] == [CommitKind.APPEND, CommitKind.APPEND, CommitKind.COMPACT]
    assert [s.watermark for s in found] == [50, 50, 50]
    assert (tmp_path / "snapshot" / "LATEST").read_text() == "3"
    assert (tmp_path / "snapshot" / "EARLIEST").read_text() == "1"
    assert content(store) == [(1, "a"), (2, "b"), (3, "a")]


def test_data_and_compaction_of_one_message_become_two_snapshots(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    Committer(store).commit([rows(store, [1], "a")])
    ((_, _, old),) = live_files(store)
    both = dataclasses.replace(rows(store, [2], "b", 1), compact_before=(old,), compact_after=(old.upgrade(5),))
    assert Committer(store, "u").commit([both], commit_identifier=9).snapshot_ids == [2, 3]
    kinds = [(snapshots.read(store, i).commit_kind, snapshots.read(store, i).commit_identifier) for i in (2, 3)]
    assert kinds == [(CommitKind.APPEND, 9), (CommitKind.COMPACT, 9)]
    assert sorted(f.level for _, _, f in live_files(store)) == [0, 5]
    assert both.own_files() == list(both.new_files)


def test_an_empty_commit_writes_nothing(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    assert Committer(store).commit([]).snapshot_ids == []
    assert Committer(store).commit([message(store)]).snapshot_ids == []
    assert Committer(store).overwrite([]).snapshot_ids == []
    assert Committer(store, "u").filter_and_commit({1: [], 2: [message(store)]}) == []
    assert sorted(tmp_path.rglob("*")) == before


def test_deleted_files_make_the_snapshot_an_overwrite(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    Committer(store).commit([rows(store, [1], "a")])
    ((_, _, old),) = live_files(store)
    Committer(store).commit([message(store, deleted_files=[old])])
    latest = snapshots.latest(store)
    assert latest is not None
    assert (latest.commit_kind, latest.total_record_count, content(store)) == (CommitKind.OVERWRITE, 0, [])


def test_the_snapshot_names_the_newest_schema_and_keeps_counters_of_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = make_store(tmp_path)
    Committer(store).commit([rows(store, [1], "a")])
    path = tmp_path / "snapshot" / "snapshot-1"
    text = json.loads(path.read_text())
    path.write_text(json.dumps({**text, "nextRowId": 5, "somethingNew": 1, "statistics": "stat-x"}))
    schema = json.loads((tmp_path / "schema" / "schema-0").read_text())
    (tmp_path / "schema" / "schema-1").write_text(json.dumps({**schema, "id": 1}))
    Committer(store).commit([rows(store, [2], "b", 1)])
    latest = snapshots.latest(store)
    assert latest is not None
    assert (latest.schema_id, latest.next_row_id, latest.statistics) == (1, 5, None)
    assert "statistics stat-x cannot be read and end here" in caplog.text
    (tmp_path / "statistics").mkdir()
    (tmp_path / "statistics" / "stat-y").write_text(json.dumps({"schemaId": 1}))
    path = tmp_path / "snapshot" / "snapshot-2"
    path.write_text(json.dumps({**json.loads(path.read_text()), "statistics": "stat-y"}))
    Committer(store).commit([rows(store, [3], "b", 2)])
    latest = snapshots.latest(store)
    assert latest is not None
    assert latest.statistics == "stat-y"


# -- overwrite -----------------------------------------------------------------------------------------------------


def partitioned(tmp_path: Path) -> TableStore:
    store = make_store(tmp_path, PARTITIONED, primary_keys=(), partition_keys=("dt", "h"))
    Committer(store).commit([day(store, d, h, f"{d}-{h}") for d in (1, 2) for h in (0, 1)])
    return store


def day(store: TableStore, d: int, h: int, value: str) -> CommitMessage:
    import datetime

    date = datetime.date(2024, 1, d)
    partition = part(store, dt=date, h=h)
    return message(
        store,
        partition=partition,
        new_files=write_append(store, {"dt": [date], "h": [h], "v": [value]}, partition=partition),
    )


def values(store: TableStore) -> list[str]:
    return sorted(row[2] for row in content(store))


def test_overwrite_replaces_the_partitions_that_get_files(tmp_path: Path) -> None:
    store = partitioned(tmp_path)
    Committer(store).overwrite([day(store, 1, 0, "new")])
    assert values(store) == ["1-1", "2-0", "2-1", "new"]
    latest = snapshots.latest(store)
    assert latest is not None
    assert (latest.commit_kind, latest.total_record_count, latest.delta_record_count) == (CommitKind.OVERWRITE, 4, 0)


def test_overwrite_of_a_partial_spec_replaces_all_partitions_it_matches(tmp_path: Path) -> None:
    store = partitioned(tmp_path)
    Committer(store).overwrite([day(store, 1, 7, "new")], {"dt": "2024-01-01"})
    assert values(store) == ["2-0", "2-1", "new"]
    Committer(store).overwrite([], {"h": "1"})
    assert values(store) == ["2-0", "new"]
    Committer(store).overwrite([day(store, 2, 2, "all")], {})
    assert values(store) == ["all"]
    assert Committer(store).overwrite([], {}).snapshot_ids == [5]
    assert Committer(store).overwrite([], {}).snapshot_ids == []
    assert values(store) == []


def test_overwrite_refuses_what_does_not_fit_its_spec(tmp_path: Path) -> None:
    store = partitioned(tmp_path)
    outside = day(store, 2, 0, "new")
    with pytest.raises(InvalidData, match="outside"):
        Committer(store).overwrite([outside], {"dt": "2024-01-01"})
    with pytest.raises(ColumnNotFound, match="no column 'v'"):
        Committer(store).overwrite([], {"v": "x"})
    with pytest.raises(InvalidData, match="cannot be a value"):
        Committer(store).overwrite([], {"dt": "yesterday"})
    assert values(store) == ["1-0", "1-1", "2-0", "2-1"]
    assert abort(store, [outside])
    assert stray_files(store) == set()


def test_overwrite_of_a_table_without_partitions_replaces_everything(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    Committer(store).commit([rows(store, [1, 2], "a")])
    Committer(store).overwrite([rows(store, [3], "b")])
    assert content(store) == [(3, "b")]


# -- identifiers -----------------------------------------------------------------------------------------------------


def test_filter_and_commit_is_idempotent(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    batches = {i: [rows(store, [i], f"v{i}", i)] for i in (1, 2, 3)}
    committer = Committer(store, "job")
    assert committer.filter_and_commit({2: batches[2], 1: batches[1]}) == [1, 2]
    assert Committer(store, "job").filter_and_commit(batches) == [3]
    assert Committer(store, "job").filter_and_commit(batches) == []
    other = {1: [rows(store, [9], "other", 9)]}
    assert Committer(store, "other").filter_and_commit(other) == [4]
    assert content(store) == [(1, "v1"), (2, "v2"), (3, "v3"), (9, "other")]


def test_filter_and_commit_finishes_an_identifier_whose_compaction_was_lost(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    Committer(store).commit([rows(store, [1], "a")])
    ((_, _, old),) = live_files(store)
    both = dataclasses.replace(rows(store, [2], "b", 1), compact_before=(old,), compact_after=(old.upgrade(5),))
    only_data = dataclasses.replace(both, compact_before=(), compact_after=())
    assert Committer(store, "job").commit([only_data], commit_identifier=7).snapshot_ids == [2]
    assert Committer(store, "job").filter_and_commit({7: [both]}) == [3]
    assert Committer(store, "job").filter_and_commit({7: [both]}) == []
    assert sorted(f.level for _, _, f in live_files(store)) == [0, 5]


def test_committing_the_same_messages_again_finds_the_first_commit(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    first = rows(store, [1], "a")
    assert Committer(store, "me").commit([first]).snapshot_ids == [1]
    # Compaction moved the file meanwhile, so adding it again would bring a dead file back.
    ((_, _, old),) = live_files(store)
    Committer(store).commit([message(store, compact_before=[old], compact_after=[old.upgrade(5)])])
    assert Committer(store, "me").commit([first]).snapshot_ids == [1]
    assert Committer(store, "me").commit([rows(store, [2], "b", 1)]).snapshot_ids == [3]
    assert [f.level for _, _, f in live_files(store)] == [5, 0]


def test_somebody_else_adding_a_file_again_is_a_conflict(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    first = rows(store, [1], "a")
    Committer(store, "me").commit([first])
    with pytest.raises(CommitConflict, match="already in the table") as caught:
        Committer(store, "you").commit([first])
    assert caught.value.by_user == "me"
    assert caught.value.snapshot_id == 1
    assert caught.value.files == (first.new_files[0].file_name,)
    # ... and abort must see that the file is alive.
    assert abort(store, [first]) == []
    assert content(store) == [(1, "a")]
    assert stray_files(store) == set()


# -- refusals ----------------------------------------------------------------------------------------------------------


def test_tables_that_dredge_cannot_keep_up_are_refused_before_any_file(tmp_path: Path) -> None:
    plain = make_store(tmp_path)
    new = rows(plain, [1], "a")
    schema = json.loads((tmp_path / "schema" / "schema-0").read_text())
    schema["options"]["commit.callbacks"] = "a.B"
    (tmp_path / "schema" / "schema-0").write_text(json.dumps(schema))
    store = reopen(tmp_path)
    for call in (Committer(store).commit, Committer(store).overwrite):
        with pytest.raises(UnsupportedFeature, match="callbacks"):
            call([new])
    assert not (tmp_path / "manifest").exists()
    assert not (tmp_path / "snapshot").exists()


# -- changelog files ---------------------------------------------------------------------------------------------------


def told(store: TableStore, key: int, value: str) -> DataFileMeta:
    """A changelog file of one row."""
    writer = KeyValueFileWriter.of_changes(store, EMPTY, 0, 1, 0)
    writer.write(kv_batch(store, {"k": [key], "v": [value]}))
    (file,) = writer.close()
    return file


def changelogs(store: TableStore, snapshot_id: int) -> tuple[list[str], int | None]:
    snapshot = snapshots.read(store, snapshot_id)
    names = manifests.changelog_entries(store, snapshot).column("file_name").to_pylist()
    return names, snapshot.changelog_record_count


def test_changelog_files_come_with_the_snapshot_of_their_part(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    first = rows(store, [1], "a")
    of_input, of_compaction = told(store, 1, "a"), told(store, 1, "a")
    (old,) = first.new_files
    both = dataclasses.replace(
        first,
        changelog_files=(of_input,),
        compact_before=(old,),
        compact_after=(old.upgrade(5),),
        compact_changelog=(of_compaction,),
    )
    assert Committer(store, "me").commit([both]).snapshot_ids == [1, 2]
    assert changelogs(store, 1) == ([of_input.file_name], 1)
    assert changelogs(store, 2) == ([of_compaction.file_name], 1)
    assert (
        snapshots.read(store, 1).changelog_manifest_list_size
        == Path(store.manifest_path(str(snapshots.read(store, 1).changelog_manifest_list))).stat().st_size
    )
    Committer(store, "me").commit([rows(store, [2], "b")])
    assert changelogs(store, 3) == ([], 0)
    assert abort(store, [both]) == []  # the table tells of all of its files
    assert stray_files(store) == set()


def test_a_commit_that_fails_takes_its_changelog_files_and_manifests_along(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    first = rows(store, [1], "a")
    Committer(store).commit([first])
    again = message(
        store, compact_before=[write_kv(store, {"k": [9], "v": ["z"]})[0]], compact_changelog=[told(store, 1, "a")]
    )
    before = set(Path(store.manifest_dir).iterdir())
    with pytest.raises(CommitConflict):
        Committer(store).commit([again])
    assert set(Path(store.manifest_dir).iterdir()) == before
    assert Path(store.data_path(EMPTY, 0, again.compact_changelog[0])).name in [
        Path(p).name for p in abort(store, [again])
    ]


def test_a_changelog_file_that_is_gone_is_named_and_nothing_is_committed(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    lost = told(store, 1, "a")
    Path(store.data_path(EMPTY, 0, lost)).unlink()
    with pytest.raises(CorruptFile, match=lost.file_name):
        Committer(store).commit([dataclasses.replace(rows(store, [1], "a"), changelog_files=(lost,))])
    assert snapshots.latest_id(store) is None


def test_an_overwrite_tells_no_changes_and_leaves_no_changelog_files(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = make_store(tmp_path)
    new = dataclasses.replace(rows(store, [1], "a"), changelog_files=(told(store, 1, "a"),))
    Committer(store).overwrite([new], {})
    assert changelogs(store, 1) == ([], 0)
    assert stray_files(store) == set()
    assert "tells no changes" in caplog.text


def test_abort_deletes_new_files_and_never_upgraded_ones(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    Committer(store).commit([rows(store, [1], "a")])
    ((_, _, old),) = live_files(store)
    made = write_kv(store, {"k": [2], "v": ["b"]}, level=5)
    failed = message(store, compact_before=[old], compact_after=[old.upgrade(5), *made])
    assert [Path(p).name for p in abort(store, [failed])] == [made[0].file_name]
    assert content(store) == [(1, "a")]
    assert stray_files(store) == set()


def test_abort_keeps_files_that_were_committed_and_compacted_away_since(tmp_path: Path) -> None:
    """The data part of a commit came through, its compaction part, whose input moved, is left out: the data files stay."""
    store = make_store(tmp_path)
    Committer(store).commit([rows(store, [1], "a")])
    ((_, _, old),) = live_files(store)
    stale = dataclasses.replace(
        rows(store, [2], "b", 1), compact_before=(old.upgrade(3),), compact_after=(old.upgrade(5),)
    )
    assert Committer(store).commit([stale]).snapshot_ids == [2]
    both = [file for _, _, file in live_files(store)]
    merged = write_kv(store, {"k": [1, 2], "v": ["a", "b"]}, level=5, source=1)
    Committer(store).commit([message(store, compact_before=both, compact_after=merged)])
    assert abort(store, [stale]) == []
    assert stray_files(store) == set()
    assert (tmp_path / "bucket-0" / stale.new_files[0].file_name).exists()


# -- messages ----------------------------------------------------------------------------------------------------------

stats = st.builds(
    SimpleStats,
    st.binary(max_size=20),
    st.binary(max_size=20),
    st.none() | st.lists(st.none() | st.integers(0, 2**62), max_size=3).map(tuple),
)
longs = st.integers(-(2**63), 2**63 - 1)
names = st.none() | st.lists(st.text(max_size=5), max_size=3).map(tuple)
files = st.builds(
    DataFileMeta,
    st.text(min_size=1, max_size=20),
    longs,
    longs,
    st.binary(max_size=30),
    st.binary(max_size=30),
    stats,
    stats,
    longs,
    longs,
    longs,
    st.integers(0, 10),
    extra_files=st.lists(st.text(max_size=5), max_size=2).map(tuple),
    creation_time_ms=st.none() | longs,
    delete_row_count=st.none() | longs,
    embedded_index=st.none() | st.binary(max_size=9),
    file_source=st.sampled_from([None, 0, 1]),
    value_stats_cols=names,
    external_path=st.none() | st.text(max_size=9),
    first_row_id=st.none() | longs,
    write_cols=names,
)
group = st.lists(files, max_size=2).map(tuple)
messages = st.builds(
    CommitMessage,
    st.binary(max_size=30),
    st.integers(-2, 9),
    st.integers(-2, 9),
    group,
    group,
    group,
    group,
    group,
    group,
    origin=st.none() | st.builds(Origin, st.text(), st.text(), st.text(), st.integers(0, 2**62), st.text()),
)


@given(messages)
def test_messages_survive_their_bytes(any_message: CommitMessage) -> None:
    assert CommitMessage.from_bytes(any_message.to_bytes()) == any_message


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        b"[]",
        b"null",
        b'{"version":3}',
        b'{"version":2,"partition":"","bucket":0,"total_buckets":1,"origin":{"table":"t"}}',
        b'{"version":1,"partition":"!","bucket":0,"total_buckets":1}',
        b"\x80\x04.",
    ],
)
def test_other_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(CorruptFile, match="commit message"):
        CommitMessage.from_bytes(data)


def test_a_message_with_members_nobody_knows_is_refused(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    document = json.loads(rows(store, [1], "a").to_bytes())
    document["new_files"][0]["surprise"] = 1
    with pytest.raises(CorruptFile, match="surprise"):
        CommitMessage.from_bytes(json.dumps(document).encode())
