"""Tags and rollbacks of Java and Dredge: the same files, before and after deletion, and each goes on from the other's."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lsm_core import Catalog, Table
from lsm_core.errors import DredgeError
from lsm_core.maintenance import read_trash
from tests.maintenance.tables import assert_whole, on_disk, strays
from tests.support.peers import refusal_of
from tests.support.samples import one_in

Java = Callable[..., dict[str, Any]]
FIELDS = [{"name": "k", "type": "INT NOT NULL"}, {"name": "v", "type": "INT"}]
HOUR = 3_600_000
NOON = 1_704_110_400_000  # 2024-01-01 12:00 UTC


def made(java: Java, name: str = "db.t", **options: str) -> None:
    given = {
        "bucket": "1",
        "write-only": "true",
        **{k.replace("__", ".").replace("_", "-"): v for k, v in options.items()},
    }
    java("create", table=name, schema={"fields": FIELDS, "primaryKeys": ["k"], "options": given})


def history(java: Java, name: str = "db.t", **options: str) -> None:
    """Seven snapshots: three writes, a compaction, two writes, an overwrite."""
    made(java, name, **options)
    for number in range(3):
        java("write", table=name, rows=[{"k": k, "v": number} for k in range(number, number + 4)], compact="none")
    java("compact", table=name, full=True, options={"write-only": "false"})
    for number in (5, 6):
        java("write", table=name, rows=[{"k": k, "v": number} for k in (1, number)], compact="none")
    java("write", table=name, rows=[{"k": 9, "v": 9}], compact="none", overwrite={"partition": {}})


def opened(place: Path, name: str = "db.t", **options: str) -> Table:
    return Catalog(place).table(name).copy({"dredge.delete-mode": "direct", **options})


def files(table: Table) -> dict[str, bytes]:
    """What lies on disk but for what only Dredge keeps, and the hint that Java writes later (readers do without)."""
    return {name: data for name, data in on_disk(table, without=("dredge/",)).items() if name != "changelog/EARLIEST"}


def rows(table: Table, **version: Any) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in table.to_arrow(**version).to_pylist())


def theirs(java: Java, place: Path, **options: Any) -> list[tuple[Any, ...]]:
    found = java("read", warehouse=str(place), options=options or None)["rows"]
    return sorted((row["k"], row["v"]) for row in found)


@pytest.mark.paimon_java
def test_tags_are_the_same_files_and_each_uses_the_others(java: Java, tmp_path: Path) -> None:
    history(java)
    java("tag", name="java", snapshot=2)
    java("tag", name="java kept", snapshot=3, time_retained_ms=90_061_001)
    table = opened(tmp_path)
    table.create_tag("dredge", 2)
    table.create_tag("dredge kept", 3, time_retained=90_061_001)
    found = files(table)
    assert found["tag/tag-dredge"] == found["tag/tag-java"]
    kept = [table.tags()[name] for name in ("java kept", "dredge kept")]
    assert kept[0].snapshot == kept[1].snapshot and kept[0].time_retained_ms == kept[1].time_retained_ms
    assert abs(kept[0].create_time_ms - kept[1].create_time_ms) < HOUR / 4  # type: ignore[operator]
    # Each expires the snapshots, and reads the other's tags.
    java("expire_snapshots", retain_max=2, retain_min=1, older_than_ms=NOON * 2)
    for name in ("java", "dredge", "java kept", "dredge kept"):
        assert theirs(java, tmp_path, **{"scan.tag-name": name}) == rows(table, tag=name)
    java("rename_tag", name="dredge", to="moved")
    table.rename_tag("java", "gone")
    java("delete_tag", name="gone")
    table.delete_tag("moved")
    assert set(table.tags()) == {"java kept", "dredge kept"}
    table.create_tag("java kept", replace=True)
    assert theirs(java, tmp_path, **{"scan.tag-name": "java kept"}) == rows(table)
    # A tag of a snapshot that only a tag keeps.
    java("tag", name="again", snapshot=3)
    assert table.create_tag("and again", 3).tagged == 3
    assert files(table)["tag/tag-again"] == files(table)["tag/tag-and again"]
    assert_whole(table)


@pytest.mark.paimon_java
@pytest.mark.parametrize("name", one_in(3, ["7", "20240101", " ", "", "a b", "ä"]))
def test_names_that_java_takes_are_taken(java: Java, tmp_path: Path, name: str) -> None:
    made(java)
    java("write", rows=[{"k": 1, "v": 1}])
    result = refusal_of(lambda: java("tag", name=name, snapshot=1))
    if not result:
        java("delete_tag", name=name)
    assert bool(result) == bool(refusal_of(lambda: opened(tmp_path).create_tag(name, 1))), result


@pytest.mark.paimon_java
@pytest.mark.parametrize("producer", one_in(2, ["none", "input"], 1))
def test_deleting_tags_leaves_the_same_files(java: Java, tmp_path: Path, producer: str) -> None:
    history(java, changelog_producer=producer)
    for number in (2, 3, 5):
        java("tag", name=f"v{number}", snapshot=number)
    java("tag", name="twin", snapshot=3)
    java("tag", name="live", snapshot=7)
    few = {"snapshot.num-retained.min": "1", "snapshot.num-retained.max": "1", "snapshot.time-retained": "1 ms"}
    java("expire_snapshots", options=few)
    assert not (tmp_path / "db.db" / "t" / "changelog").exists()  # Java lets changelogs hold no file from tags
    shutil.copytree(tmp_path / "db.db", tmp_path / "other" / "db.db")
    ours, place = opened(tmp_path / "other"), tmp_path
    for name in ("live", "v3", "v2", "twin", "v5"):
        java("delete_tag", name=name, warehouse=str(place))
        ours.delete_tag(name)
        assert set(files(ours)) == set(files(opened(place))), name
    # Java's overwrite leaves the changelog file that it does not commit.
    assert len(strays(ours)) == (producer == "input") and not read_trash(ours.store).records
    assert theirs(java, tmp_path / "other") == rows(ours)


@pytest.mark.paimon_java
@pytest.mark.parametrize("target", one_in(2, ["snapshot", "tag"], 1))
def test_a_rollback_leaves_the_same_history(java: Java, tmp_path: Path, target: str) -> None:
    history(java)
    java("tag", name="old", snapshot=2, time_retained_ms=HOUR)
    java("tag", name="new", snapshot=6)
    if target == "tag":
        java("expire_snapshots", retain_max=3, retain_min=1, older_than_ms=NOON * 2)
    shutil.copytree(tmp_path / "db.db", tmp_path / "other" / "db.db")
    ours, other = Catalog(tmp_path / "other").table("db.t"), str(tmp_path / "other")
    before = files(ours)
    java("rollback", **({"tag": "old"} if target == "tag" else {"snapshot": 5}))
    report = ours.rollback_to("old" if target == "tag" else 5)
    small = ("snapshot/", "tag/", "schema/")
    java_left = {name: data for name, data in files(opened(tmp_path)).items() if name.startswith(small)}
    assert {name: data for name, data in files(ours).items() if name.startswith(small)} == java_left
    assert theirs(java, tmp_path / "other") == rows(ours) == theirs(java, tmp_path) == rows(opened(tmp_path))
    # What Dredge puts back is what Java had.
    ours.restore(report.trash_id)
    assert files(ours) == before
    assert theirs(java, tmp_path / "other") == [(9, 9)]
    # Both go on from the other's rollback.
    ours.rollback_to("old" if target == "tag" else 5)
    java("write", warehouse=other, rows=[{"k": 50, "v": 50}], compact="none")
    mine = opened(tmp_path)
    mine.write(pa.table({"k": pa.array([50], pa.int32()), "v": pa.array([50], pa.int32())}))
    assert theirs(java, tmp_path / "other") == rows(ours) == rows(mine) == theirs(java, tmp_path)
    assert ours.latest_snapshot().id == mine.latest_snapshot().id == (3 if target == "tag" else 6)
    with pytest.raises(DredgeError, match="was committed after the rollback"):
        ours.restore(read_trash(ours.store).records[-1].trash_id)
    ours.copy({"dredge.delete-mode": "direct"}).sweep_trash(now_ms=NOON * 2)
    java("compact", warehouse=other, full=True, options={"write-only": "false"})
    assert theirs(java, tmp_path / "other") == rows(ours) and not strays(ours)
    assert_whole(ours)


AUTOMATIC: dict[str, dict[str, str]] = {
    "hourly": {"tag.creation-period": "hourly"},
    "hourly, two kept": {"tag.creation-period": "hourly", "tag.num-retained-max": "2"},
    "completion": {"tag.creation-period": "hourly", "tag.automatic-completion": "true"},
    "delay": {
        "tag.creation-period": "hourly",
        "tag.creation-delay": "20 min",
        "tag.period-formatter": "without_dashes",
    },
    "two hours": {"tag.creation-period": "two-hours", "tag.default-time-retained": "3 d"},
    "daily": {"tag.period-formatter": "without_dashes", "sink.watermark-time-zone": "Asia/Shanghai"},
    "minutes": {"tag.creation-period-duration": "90 min", "tag.create-success-file": "true"},
    "joined": {"tag.creation-period": "hourly", "tag.period-formatter": "without_dashes_and_spaces"},
}


@pytest.mark.paimon_java
def test_automatic_tags_are_those_that_java_makes(java: Java, tmp_path: Path) -> None:
    minutes = [0, 10, 61, 75, 130, 400, 405, 430, 700, 1500]
    for number, (what, options) in enumerate(AUTOMATIC.items()):
        name = f"db.a{number}"
        given = {"bucket": "1", "num-sorted-run.compaction-trigger": "50", **options}
        given["tag.automatic-creation"] = "watermark"
        for place in (tmp_path, tmp_path / "ours"):
            schema = {"fields": FIELDS, "primaryKeys": ["k"], "options": given}
            java("create", warehouse=str(place), table=name, schema=schema)
        ours = Catalog(tmp_path / "ours").table(name)
        for k, minute in enumerate(minutes):
            mark = NOON + minute * 60_000
            java("write", table=name, rows=[{"k": k, "v": minute}], watermark=mark, identifier=k, commit_user="job")
            ours.write(pa.table({"k": pa.array([k], pa.int32()), "v": pa.array([minute], pa.int32())}), watermark=mark)
        java_made = Catalog(tmp_path).table(name)
        made_by = [
            {tag: (item.snapshot.watermark, item.time_retained_ms) for tag, item in table.tags().items()}
            for table in (ours, java_made)
        ]
        assert made_by[0] == made_by[1] != {}, what
        records = [{path for path in files(table) if "SUCCESS" in path} for table in (ours, java_made)]
        assert records[0] == records[1] and bool(records[0]) == ("tag.create-success-file" in options), what


@pytest.mark.paimon_java
def test_java_reads_and_expires_behind_an_older_version_as_the_newest(java: Java, tmp_path: Path) -> None:
    history(java)
    table = opened(tmp_path)
    before = {number: rows(table, snapshot_id=number) for number in (2, 6)}
    for number in (2, 6):
        table.rollback_to_as_latest(number)
        assert theirs(java, tmp_path) == rows(table) == before[number]
    java("write", rows=[{"k": 100, "v": 1}], compact="none")
    java("expire_snapshots", retain_max=1, retain_min=1, older_than_ms=2**62)
    assert [snapshot.id for snapshot in table.snapshots()] == [10]
    assert theirs(java, tmp_path) == rows(table) == sorted([*before[6], (100, 1)])
    assert_whole(table)
    java("compact", full=True, options={"write-only": "false"})
    assert theirs(java, tmp_path) == rows(table)


@pytest.mark.paimon_java
def test_a_tag_whose_changelog_java_expired_is_whole(java: Java, tmp_path: Path) -> None:
    made(
        java,
        write_only="false",
        changelog_producer="lookup",
        snapshot__num_retained__min="1",
        snapshot__num_retained__max="1",
    )
    java("write", rows=[{"k": 1, "v": 1}], compact="full")
    java("tag", name="kept")
    for value in (2, 3):
        java("write", rows=[{"k": 1, "v": value}], compact="full")
    java("expire_snapshots", retain_max=1, retain_min=1, older_than_ms=0)
    table = opened(tmp_path)
    kept = table.tags()["kept"].snapshot
    assert not Path(table.store.manifest_path(str(kept.changelog_manifest_list))).exists()  # what Java's expiry took
    assert [report.text for report in table.check() if not report.passed] == []
    table.rollback_to("kept")
    assert rows(table.refresh()) == theirs(java, tmp_path) == [(1, 1)]
    table.refresh().delete_tag("kept")
    assert [report.text for report in table.refresh().check() if not report.passed] == []


@pytest.mark.paimon_java
def test_java_sees_files_that_an_undo_or_a_rollback_takes_back_to_their_level(tmp_path: Path, java: Java) -> None:
    """Its scan leaves out a file that a manifest deletes, even if a later one adds it on the same level again."""
    made(java, dredge__compaction__inline="never")
    table = opened(tmp_path)
    table.write(pa.table({"k": pa.array([1, 2, 3], pa.int32()), "v": pa.array([1, 2, 3], pa.int32())}))
    for _ in range(2):
        report = table.compact(full=True)
        assert (report.files_in, report.files_upgraded) == (0, 1)
        table.undo(report.run_id)
        assert theirs(java, tmp_path) == rows(table) == [(1, 1), (2, 2), (3, 3)]
    table.compact(full=True)
    for number in (table.snapshots()[0].id, table.snapshots()[-1].id):
        table.rollback_to_as_latest(number)
        assert theirs(java, tmp_path) == rows(table) == [(1, 1), (2, 2), (3, 3)]
    java("compact", full=True, options={"write-only": "false"})
    assert theirs(java, tmp_path) == rows(table) == [(1, 1), (2, 2), (3, 3)]
