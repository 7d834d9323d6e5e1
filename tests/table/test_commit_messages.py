"""Commit messages belong to one table and are committed once, whatever happened to their files since."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lsm_core import Catalog, Schema, Table
from lsm_core.commit import CommitMessage
from lsm_core.errors import CommitConflict, CorruptFile, InvalidData
from lsm_core.format.snapshot import Snapshot
from lsm_core.metadata import manifests
from lsm_core.metadata.store import TableStore

COLUMNS = pa.schema([pa.field("k", pa.int64(), nullable=False), ("v", pa.string())])
KINDS: dict[str, tuple[list[str], dict[str, str]]] = {"keyed": (["k"], {"bucket": "1"}), "append": ([], {})}


def rows(*keys: int) -> pa.Table:
    return pa.table([list(keys), [f"v{k}" for k in keys]], schema=COLUMNS)


def create(folder: Path, name: str = "t", kind: str = "keyed", **options: str) -> Table:
    keys, chosen = KINDS[kind]
    catalog = Catalog(folder)
    catalog.create_database("db", ignore_if_exists=True)
    return catalog.create_table(f"db.{name}", Schema(COLUMNS, keys, [], {**chosen, **options}))


def prepared(table: Table, *keys: int) -> list[CommitMessage]:
    writer = table.new_write()
    writer.write(rows(*keys))
    return writer.prepare_commit()


def keys_of(table: Table) -> list[int]:
    return sorted(table.to_arrow()["k"].to_pylist())


def files(table: Table) -> set[str]:
    return {path.name for path in Path(table.store.root).rglob("data-*")}


# -- whose they are ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["commit", "overwrite", "stream", "bytes"])
def test_messages_of_another_table_are_refused_and_stay_good_for_their_own(tmp_path: Path, how: str) -> None:
    left, right = create(tmp_path, "left"), create(tmp_path, "right")
    right.write(rows(1))
    messages = prepared(left, 2)
    given = [CommitMessage.from_bytes(m.to_bytes()) for m in messages] if how == "bytes" else messages
    with pytest.raises(InvalidData, match=r"db\.right.*db\.left") as caught:
        if how == "stream":
            right.new_stream_commit("job").filter_and_commit({1: given})
        elif how == "overwrite":
            right.new_commit().overwrite(given)
        else:
            right.new_commit().commit(given)
    assert left.store.root in str(caught.value)
    assert right.store.root in str(caught.value)
    assert keys_of(right) == [1]
    latest = right.latest_snapshot()
    assert latest is not None
    assert latest.id == 1
    left.new_commit().commit(messages)
    assert keys_of(left) == [2]


def test_messages_of_a_table_with_other_partitions_are_refused(tmp_path: Path) -> None:
    right = create(tmp_path, "right")
    schema = Schema(COLUMNS, [], ["k"], {})
    left = Catalog(tmp_path).create_table("db.left", schema)
    with pytest.raises(InvalidData, match=r"db\.right.*db\.left"):
        right.new_commit().commit(prepared(left, 2))
    with pytest.raises(InvalidData, match=r"db\.left.*db\.right"):
        left.new_commit().commit(prepared(right, 2))


def test_messages_of_a_branch_are_not_those_of_the_table(tmp_path: Path) -> None:
    table = create(tmp_path)
    table.write(rows(1))
    root = Path(table.store.root)
    (root / "branch" / "branch-dev" / "schema").mkdir(parents=True)
    (root / "branch" / "branch-dev" / "schema" / "schema-0").write_bytes((root / "schema" / "schema-0").read_bytes())
    dev = Catalog(tmp_path).table("db.t$branch_dev")
    with pytest.raises(InvalidData, match="branch dev"):
        table.new_commit().commit(prepared(dev, 2))


def test_a_table_knows_its_messages_by_any_path_and_after_a_rename(tmp_path: Path) -> None:
    table = create(tmp_path / "wh")
    (tmp_path / "link").symlink_to(tmp_path / "wh")
    Catalog(tmp_path / "link").table("db.t").new_commit().commit(prepared(table, 1))
    waiting = prepared(table, 2)
    Catalog(tmp_path / "wh").rename_table("db.t", "db.u")
    renamed = Catalog(tmp_path / "wh").table("db.u")
    renamed.new_commit().commit(waiting)
    assert keys_of(renamed) == [1, 2]


@pytest.mark.parametrize("given", [["x"], None, 7, "messages", [None], b"bytes", {1: 2}])
def test_what_is_no_message_is_a_typed_error(tmp_path: Path, given: Any) -> None:
    table = create(tmp_path)
    for call in (
        table.new_commit().commit,
        table.new_commit().overwrite,
        lambda wrong: table.new_stream_commit("job").filter_and_commit({1: wrong}),
    ):
        with pytest.raises(InvalidData, match=r"db\.t.*CommitMessage"):
            call(given)
    unusual: list[Any] = [None, ["x"], {"1": []}, {True: []}]
    for wrong in unusual:
        with pytest.raises(InvalidData, match="mapping of identifiers"):
            table.new_stream_commit("job").filter_and_commit(wrong)
    assert table.latest_snapshot() is None


# -- once --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("since", ["nothing", "compacted", "expired", "tagged", "swept"])
def test_messages_are_committed_once(tmp_path: Path, kind: str, since: str) -> None:
    """Whoever commits again, and wherever the rows live by now: no row comes twice and no dead file comes back."""
    table = create(tmp_path, kind=kind)
    messages = prepared(table, 1, 2)
    again = [CommitMessage.from_bytes(m.to_bytes()) for m in messages]
    first = table.new_commit("job").commit(messages)
    expected = [1, 2]
    if since != "nothing":
        if since == "tagged":
            root = Path(table.store.root)
            (root / "tag").mkdir()
            (root / "tag" / "tag-kept").write_bytes((root / "snapshot" / "snapshot-1").read_bytes())
        table.write(rows(3))
        table.compact(full=True)
        expected = [1, 2, 3]
    if since not in {"nothing", "compacted"}:
        table.expire_snapshots(retain_max=1, retain_min=1)
    if since in {"tagged", "swept"}:
        table.sweep_trash(now_ms=1 << 60)
    for user in (None, "somebody"):
        with pytest.raises((CommitConflict, CorruptFile)) as caught:
            table.new_commit(user).commit(again)
        if since != "swept":
            assert isinstance(caught.value, CommitConflict)
            assert caught.value.files == (again[0].new_files[0].file_name,)
        with pytest.raises((CommitConflict, CorruptFile)):
            table.new_commit(user).overwrite(again)
    if since in {"nothing", "compacted"}:
        assert table.new_commit("job").commit(again) == first
    else:
        with pytest.raises((CommitConflict, CorruptFile)):
            table.new_commit("job").commit(again)
    assert keys_of(table) == expected
    if since == "tagged":  # the tag still reads: a refused commit deletes nothing that others need
        assert sorted(table.to_arrow(tag="kept")["k"].to_pylist()) == [1, 2]


def test_the_same_commit_object_twice_commits_once(tmp_path: Path) -> None:
    table = create(tmp_path, kind="append")
    messages, commit = prepared(table, 1), table.new_commit()
    commit.commit(messages)
    with pytest.raises(CommitConflict, match="already in the table"):
        commit.commit(messages)
    commit.commit(prepared(table, 2))
    assert keys_of(table) == [1, 2]


def test_a_numbered_commit_that_a_retry_wrote_again_is_refused(tmp_path: Path) -> None:
    table = create(tmp_path, kind="append")
    table.new_commit("job").commit(prepared(table, 1), commit_identifier=7)
    table.write(rows(2))
    with pytest.raises(CommitConflict, match="commit 7 is already in the table") as caught:
        table.new_commit("job").commit(prepared(table, 1), commit_identifier=7)
    assert (caught.value.by_user, caught.value.snapshot_id) == ("job", 1)
    assert len(files(table)) == 2  # and its files are gone
    table.new_commit("job").commit(prepared(table, 3), commit_identifier=8)
    table.new_commit("other").commit(prepared(table, 4), commit_identifier=7)
    assert keys_of(table) == [1, 2, 3, 4]


def test_a_stream_s_commits_happen_once_after_their_snapshots_expired(tmp_path: Path) -> None:
    table = create(tmp_path, kind="append")
    made: dict[int, list[CommitMessage]] = {}
    with table.new_stream_write("job") as writer:
        for number in (1, 2, 3):
            writer.write(rows(number))
            made[number] = writer.prepare_commit(commit_identifier=number)
    table.new_stream_commit("job").filter_and_commit({number: made[number] for number in (1, 2)})
    table.write(rows(4))
    table.compact(full=True)
    table.expire_snapshots(retain_max=1, retain_min=1)
    assert len(table.snapshots()) == 1
    (last,) = table.new_stream_commit("job").filter_and_commit(made)
    assert keys_of(table) == [1, 2, 3, 4]
    assert table.new_stream_commit("job").filter_and_commit(made) == []
    latest = table.latest_snapshot()
    assert latest is not None
    assert (latest.id, latest.commit_identifier) == (last, 3)


def test_messages_without_an_origin_are_committed_once_too(tmp_path: Path) -> None:
    """Those that an older Dredge made: version 1 of their bytes does not say where they come from."""
    table = create(tmp_path, kind="append")
    messages = [dataclasses.replace(message, origin=None) for message in prepared(table, 1)]
    old = [m.to_bytes().replace(b'"version":2', b'"version":1') for m in messages]
    table.new_commit().commit([CommitMessage.from_bytes(data) for data in old])
    table.write(rows(2))
    table.compact(full=True)
    with pytest.raises(CommitConflict, match="already committed"):
        table.new_commit().commit(messages)
    assert keys_of(table) == [1, 2]


def test_a_file_that_is_gone_is_named_before_anything_is_published(tmp_path: Path) -> None:
    table = create(tmp_path)
    table.write(rows(1))
    messages = prepared(table, 2)
    (lost,) = (m.new_files[0].file_name for m in messages)
    (Path(table.store.root) / "bucket-0" / lost).unlink()
    for call in (table.new_commit().commit, table.new_commit().overwrite):
        with pytest.raises(CorruptFile, match=lost):
            call(messages)
    assert keys_of(table) == [1]


def test_only_snapshots_after_the_messages_are_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = create(tmp_path, kind="append")
    for number in range(6):
        table.write(rows(number))
    messages = prepared(table, 10)
    table.write(rows(11))
    asked: list[int] = []
    real = manifests.delta_entries

    def noted(store: TableStore, snapshot: Snapshot) -> pa.Table:
        asked.append(snapshot.id)
        return real(store, snapshot)

    monkeypatch.setattr(manifests, "delta_entries", noted)
    table.new_commit().commit(messages)
    assert asked == [7]


def test_a_table_rolled_back_takes_the_messages_again(tmp_path: Path) -> None:
    table = create(tmp_path, kind="append")
    table.write(rows(1))
    messages = prepared(table, 2)
    table.new_commit().commit(messages)
    (Path(table.store.root) / "snapshot" / "snapshot-2").unlink()
    table.new_commit().commit(messages)
    assert keys_of(table) == [1, 2]
