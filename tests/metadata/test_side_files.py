"""The small files beside snapshots come back byte for byte as Java wrote them, and a damaged one is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from lsm_core.errors import CorruptFile, SnapshotNotFound
from lsm_core.format.side_files import (
    ColumnStatistics,
    Statistics,
    Tag,
    decode_changelog,
    decode_consumer,
    encode_changelog,
    encode_consumer,
)
from lsm_core.metadata import changelogs, consumers, manifests, snapshots, statistics, tags
from lsm_core.metadata.store import TableStore
from tests.golden.cases import cases

CASES = {case.name: case for case in cases()}


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> dict[str, TableStore]:
    place = tmp_path_factory.mktemp("side")
    names = ("changelog_decoupled", "expired", "stream_commits", "tags_branches")
    return {name: CASES[name].unpack(place / name) for name in names}


def test_tags_come_back_byte_for_byte(tables: dict[str, TableStore]) -> None:
    root = Path(tables["tags_branches"].root)
    files = [*root.glob("tag/tag-*"), *root.glob("branch/*/tag/tag-*")]
    assert len(files) == 3
    for path in files:
        assert Tag.from_json(path.read_bytes(), str(path)).to_json() == path.read_bytes()
    found = tags.list_details(tables["tags_branches"])
    assert found["t1"].time_retained_ms == 86_400_000
    assert found["t1"].create_time_ms is not None
    assert found["t2"].expires_ms is None


@pytest.mark.parametrize(
    "parts",
    [[2024, 1, 2, 3, 4], [2024, 1, 2, 3, 4, 5], [2024, 1, 2, 3, 4, 0, 7], [1969, 12, 31, 23, 59, 59, 999_999_999]],
)
def test_a_tag_s_time_is_kept_to_the_nanosecond(parts: list[int], tables: dict[str, TableStore]) -> None:
    plain = tags.list_details(tables["tags_branches"])["t2"].to_json().decode()
    added = (
        f'{plain[:-2]},\n  "tagCreateTime" : [ {", ".join(map(str, parts))} ],\n  "tagTimeRetained" : 0.250000000\n}}'
    )
    tag = Tag.from_json(added.encode(), "tag-x")
    assert tag.time_retained_ms == 250
    assert tag.to_json() == added.encode()


def test_statistics_come_back_byte_for_byte(tables: dict[str, TableStore]) -> None:
    store = tables["stream_commits"]
    latest = snapshots.latest(store)
    assert latest is not None
    assert latest.statistics is not None
    path = Path(store.statistics_path(latest.statistics))
    found = statistics.read_statistics(store, latest)
    assert found is not None
    assert found.to_json() == path.read_bytes()
    assert (found.merged_record_count, found.merged_record_size, list(found.columns)) == (10, 100, ["k", "s"])
    assert found.columns["k"] == ColumnStatistics(0, 10, "0", "19", 0)
    assert statistics.read_statistics(store, snapshots.read(store, 1)) is None


def test_missing_or_damaged_statistics_are_named(tmp_path: Path) -> None:
    store = CASES["stream_commits"].unpack(tmp_path)
    latest = snapshots.latest(store)
    assert latest is not None
    path = Path(store.statistics_path(str(latest.statistics)))
    for text in ("{", "[]", '{"snapshotId": 1}', '{"snapshotId": 1, "schemaId": 0, "colStats": {"k": 1}}'):
        path.write_text(text)
        with pytest.raises(CorruptFile, match=path.name):
            statistics.read_statistics(store, latest)
    path.unlink()
    with pytest.raises(CorruptFile, match=path.name):
        statistics.read_statistics(store, latest)


def test_members_that_are_unknown_stay_out() -> None:
    empty = Statistics(1, 0)
    assert Statistics.from_json(empty.to_json(), "stat") == empty
    assert b"merged" not in empty.to_json()


def test_consumers_come_back_byte_for_byte(tables: dict[str, TableStore]) -> None:
    store = tables["expired"]
    (path,) = Path(store.root).glob("consumer/consumer-*")
    following = decode_consumer(path.read_bytes(), str(path))
    assert encode_consumer(following) == path.read_bytes()
    assert consumers.list_consumers(store) == {"c1": following}
    for text in (b"", b"{}", b'{"nextSnapshot": -1}', b'{"nextSnapshot": "1"}'):
        with pytest.raises(CorruptFile, match="consumer-x"):
            decode_consumer(text, "consumer-x")


def test_changelogs_outlive_their_snapshots(tables: dict[str, TableStore]) -> None:
    store = tables["changelog_decoupled"]
    assert changelogs.list_changelogs(store) == [1, 2, 3, 4, 5]
    assert (changelogs.earliest_id(store), changelogs.latest_id(store)) == (1, 5)
    assert snapshots.list_ids(store) == [6]
    for number in changelogs.list_changelogs(store):
        path = Path(changelogs.changelog_path(store, number))
        kept = changelogs.read_changelog(store, number)
        assert kept.id == number
        assert encode_changelog(decode_changelog(path.read_bytes(), str(path))) == path.read_bytes()
        if kept.changelog_manifest_list is not None:
            assert manifests.changelog_entries(store, kept).num_rows > 0
    with pytest.raises(SnapshotNotFound, match=r"db\.t has no changelog of snapshot 6; it keeps 1 to 5"):
        changelogs.read_changelog(store, 6)


def test_a_table_may_keep_no_changelog(tables: dict[str, TableStore]) -> None:
    store = tables["tags_branches"]
    assert (changelogs.list_changelogs(store), changelogs.latest_id(store)) == ([], None)
    with pytest.raises(SnapshotNotFound, match="it keeps none"):
        changelogs.read_changelog(store, 1)
