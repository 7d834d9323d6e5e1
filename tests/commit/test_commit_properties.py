"""What a caller says of a commit: watermark, properties, strict mode, and partitions marked done at its end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lsm_core import Table
from lsm_core.errors import CommitConflict, InvalidFilter, InvalidOption, UnsupportedFeature
from tests.maintenance.tables import NOW, content, keyed, on_disk, rows


def said(table: Table) -> tuple[Any, Any]:
    latest = table.latest_snapshot()
    assert latest is not None
    return latest.watermark, latest.properties


def test_watermark_and_properties_are_the_snapshot_s(tmp_path: Path) -> None:
    table = keyed(tmp_path)
    table.write(rows([1]), watermark=100, properties={"job": "7", "ä": ""})
    assert said(table) == (100, {"job": "7", "ä": ""})
    table.write(rows([2]), watermark=50)
    assert said(table) == (100, None)  # a watermark never goes back
    with table.new_write() as writer:
        writer.write(rows([3]))
        messages = writer.prepare_commit()
    table.new_commit().commit(messages, watermark=200, properties={"a": "b"})
    assert said(table) == (200, {"a": "b"})
    table.write(rows([4]), overwrite=True, watermark=300)
    assert said(table) == (300, None)
    with table.new_stream_write("job") as writer:
        writer.write(rows([5]))
        first = writer.prepare_commit(commit_identifier=1)
    stream = table.new_stream_commit("job")
    assert len(stream.commit(first, 1, watermark=-5, properties={"checkpoint": "1"})) == 1
    assert said(table) == (300, {"checkpoint": "1"})
    assert table.to_arrow(watermark=150).num_rows == 3


@pytest.mark.parametrize(
    "wrong",
    [
        {"watermark": True},
        {"watermark": 1.5},
        {"watermark": 1 << 63},
        {"properties": {"a": 1}},
        {"properties": {1: "a"}},
        {"properties": {"dredge.plan": "x"}},
        {"properties": {"sequence.generation.max-sequence-number": "x"}},
    ],
)
def test_what_no_snapshot_can_hold_is_refused_before_anything_is_written(tmp_path: Path, wrong: dict[str, Any]) -> None:
    table = keyed(tmp_path)
    before = on_disk(table)
    with pytest.raises(InvalidOption, match=r"watermark|properties"):
        table.write(rows([1]), **wrong)
    assert on_disk(table) == before


def written(table: Table, keys: list[int], dt: str | None = None) -> list[Any]:
    with table.new_write() as writer:
        writer.write(rows(keys, dt=dt))
        return writer.prepare_commit()


def test_strict_mode_lets_nobody_rewrite_behind_our_back(tmp_path: Path) -> None:
    table = keyed(tmp_path)
    table.write(rows(range(3)))
    table.write(rows(range(3), v=1))
    strict = table.copy({"commit.strict-mode.last-safe-snapshot": "2"})
    ours = strict.new_commit("us")
    assert ours.commit(written(strict, [5])) == 3
    table.write(rows([6]))  # rows of others do not matter to rows
    assert ours.commit(written(strict, [7])) == 5
    assert table.compact(full=True).snapshot_id == 6
    messages, before = written(strict, [8]), content(table)
    with pytest.raises(CommitConflict, match="COMPACT") as refused:
        ours.commit(messages)
    assert (refused.value.kind.value, refused.value.snapshot_id) == ("strict-mode", 6)
    assert content(table) == before
    later = table.copy({"commit.strict-mode.last-safe-snapshot": "6"})
    assert later.new_commit().commit(written(later, [8])) == 7
    # An overwrite also minds rows that came meanwhile, and what has expired may have been anything.
    with pytest.raises(CommitConflict, match="APPEND"):
        later.write(rows([9]), overwrite=True)
    table.expire_snapshots(retain_max=1, retain_min=1, older_than_ms=NOW + 1)
    with pytest.raises(CommitConflict, match="expired"):
        strict.write(rows([9]))


def test_strict_mode_from_the_first_commit_on(tmp_path: Path) -> None:
    table = keyed(tmp_path)
    for i in range(2):
        table.write(rows(range(3), v=i))
    table.compact(full=True)
    strict = table.copy({"commit.strict-mode.last-safe-snapshot": "-1"})
    ours = strict.new_commit("us")
    assert ours.commit(written(strict, [5])) == 4
    table.compact(full=True)
    with pytest.raises(CommitConflict, match="COMPACT"):
        ours.commit(written(strict, [6]))


def test_strict_mode_of_paimon_2_minds_the_same_partitions_alone(tmp_path: Path) -> None:
    table = keyed(tmp_path, partitioned=True, dredge__paimon_version="2.0")
    for day in ("a", "b"):
        for i in range(2):
            table.write(rows(range(3), v=i, dt=day))
    table.compact(full=True, partitions=[{"dt": "a"}])
    strict = table.copy({"commit.strict-mode.last-safe-snapshot": "4"})
    assert strict.write(rows([7], dt="b")) == 6
    with pytest.raises(CommitConflict, match="COMPACT"):
        strict.write(rows([7], dt="a"))
    older = strict.copy({"dredge.paimon-version": "1.4"})
    with pytest.raises(CommitConflict, match="COMPACT"):
        older.write(rows([7], dt="b"))


def success(table: Table, partition: str) -> dict[str, int] | None:
    path = Path(table.store.root) / partition / "_SUCCESS"
    return json.loads(path.read_text()) if path.exists() else None


def test_partitions_are_marked_done(tmp_path: Path) -> None:
    table = keyed(tmp_path, partitioned=True)
    table.write(rows([1], dt="a/b"))
    assert table.mark_partitions_done([{"dt": "a/b"}, {"dt": "c"}]) == ["dt=a%2Fb", "dt=c"]
    assert success(table, "dt=a%2Fb") == {"creationTime": NOW, "modificationTime": NOW}
    table.store.clock.advance(5)
    table.mark_partitions_done([{"dt": "a/b"}])
    assert success(table, "dt=a%2Fb") == {"creationTime": NOW, "modificationTime": NOW + 5}
    assert content(table) == [(1, 1, "s1", "a/b")]
    with pytest.raises(InvalidFilter):
        table.mark_partitions_done([{"day": "a"}])
    for action, error in (("http-report", UnsupportedFeature), ("applause", InvalidOption)):
        with pytest.raises(error, match=action):
            table.copy({"partition.mark-done-action": f"success-file,{action}"}).mark_partitions_done([{"dt": "d"}])
    assert success(table, "dt=d") is None
    plain = keyed(tmp_path / "plain")
    with pytest.raises(InvalidOption, match="no partitions"):
        plain.mark_partitions_done([{}])


def test_the_end_of_a_batch_marks_what_it_wrote(tmp_path: Path) -> None:
    table = keyed(tmp_path, partitioned=True, partition__end_input_to_done="true")
    both = pa.concat_tables([rows([1], dt="a"), rows([2], dt="b")])
    table.write(both)
    assert success(table, "dt=a") and success(table, "dt=b")
    table.write(rows([3], dt="c"), overwrite={"dt": "c"})
    assert success(table, "dt=c")
    refused = table.copy({"partition.mark-done-action": "mark-event"})
    before = len(table.snapshots())
    with pytest.raises(UnsupportedFeature, match="mark-event"):
        refused.write(rows([4], dt="d"))
    assert len(table.snapshots()) == before
