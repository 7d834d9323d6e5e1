"""What holds back expiry: tags, branches and consumers are all seen, and a damaged one is never taken for absent."""

from __future__ import annotations

from pathlib import Path

import pytest

from lsm_core.errors import CorruptFile, InvalidData, SnapshotNotFound, TableNotFound
from lsm_core.metadata import TableStore, branches, consumers, tags
from tests.metadata.tables import entry, make_store, publish, table_of


@pytest.fixture
def store(tmp_path: Path) -> TableStore:
    made = make_store(tmp_path)
    publish(made, 1, None, table_of(entry(made, "a")))
    return made


def put(store: TableStore, path: str, text: str) -> None:
    target = Path(store.root) / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text)


def test_a_table_may_have_none_of_them(store: TableStore) -> None:
    assert (tags.list_tags(store), branches.list_branches(store), consumers.list_consumers(store)) == ({}, [], {})
    assert consumers.min_next_snapshot(store) is None
    assert [s.branch for s in branches.all_stores(store)] == ["main"]


def test_tags_name_snapshots_with_or_without_a_retention(store: TableStore) -> None:
    text = Path(store.snapshot_path(1)).read_text()
    put(store, "tag/tag-plain", text)
    kept = text.rstrip().rstrip("}") + ', "tagCreateTime" : [2024,1,2,3,4], "tagTimeRetained" : 86400.000000000 }'
    put(store, "tag/tag-kept ä", kept)
    put(store, "tag/tag-success-file/x_SUCCESS", "{}")
    put(store, "tag/other", "not a tag")
    assert {name: snapshot.id for name, snapshot in tags.list_tags(store).items()} == {"plain": 1, "kept ä": 1}
    assert tags.read_tag(store, "plain").id == 1


def test_an_unknown_tag_is_named_with_those_there_are(store: TableStore) -> None:
    put(store, "tag/tag-v1", Path(store.snapshot_path(1)).read_text())
    with pytest.raises(SnapshotNotFound, match=r"db\.t has no tag 'v2'; it has: v1"):
        tags.read_tag(store, "v2")
    with pytest.raises(InvalidData, match="tag name"):
        tags.read_tag(store, "../x")


@pytest.mark.parametrize("text", ["", "{", '{"id": 1}'])
def test_a_damaged_tag_stops_who_asks(store: TableStore, text: str) -> None:
    put(store, "tag/tag-v1", text)
    with pytest.raises(CorruptFile, match="tag-v1"):
        tags.list_tags(store)


def test_consumers_hold_back_from_their_next_snapshot(store: TableStore) -> None:
    put(store, "consumer/consumer-a", '{"nextSnapshot": 7}')
    put(store, "consumer/consumer-b", '{ "nextSnapshot" : 5 }')
    put(store, "consumer/.consumer-b.tmp", "")
    assert consumers.list_consumers(store) == {"a": 7, "b": 5}
    assert consumers.min_next_snapshot(store) == 5


@pytest.mark.parametrize("text", ["", "{}", '{"nextSnapshot": "5"}', '{"nextSnapshot": -1}', "[]"])
def test_a_damaged_consumer_is_not_taken_for_absent(store: TableStore, text: str) -> None:
    put(store, "consumer/consumer-a", text)
    with pytest.raises(CorruptFile, match="consumer-a"):
        consumers.min_next_snapshot(store)


def test_a_branch_has_metadata_of_its_own_and_shares_the_rest(store: TableStore) -> None:
    put(store, "branch/branch-dev/schema/schema-0", Path(store.schema_path(0)).read_text())
    put(store, "branch/branch-dev/snapshot/snapshot-4", "{}")
    put(store, "branch/not-a-branch/x", "")
    assert branches.list_branches(store) == ["dev"]
    dev = branches.open_branch(store, "dev")
    assert dev.snapshot_path(4) == f"{store.root}/branch/branch-dev/snapshot/snapshot-4"
    assert dev.manifest_path("m") == store.manifest_path("m")
    assert dev.bucket_dir(bytes(12), 0) == store.bucket_dir(bytes(12), 0)
    assert [s.branch for s in branches.all_stores(store)] == ["main", "dev"]


def test_a_branch_without_schema_stops_who_asks_for_all(store: TableStore) -> None:
    put(store, "branch/branch-dev/snapshot/snapshot-1", "{}")
    with pytest.raises(TableNotFound, match="branch dev"):
        branches.all_stores(store)
