"""Automatic tags: made by whoever commits next after a period's end, as Java makes them, and no more of them than are to be kept."""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from pathlib import Path

import pytest

from lsm_core import Table
from lsm_core.clock import local_offset_ms
from lsm_core.commit import Committer
from lsm_core.errors import InvalidOption
from tests.maintenance.tables import HOUR, assert_whole, keyed, rows

DAY = 24 * HOUR


def local(*parts: int) -> int:
    """Epoch ms of this machine's wall clock."""
    moment = int(datetime(*parts, tzinfo=UTC).timestamp() * 1000)  # type: ignore[misc]
    return moment - local_offset_ms(moment)


def tagged(table: Table) -> dict[str, int]:
    return {name: tag.snapshot.id for name, tag in table.tags().items()}


def write_at(table: Table, moment: int, key: int = 1) -> None:
    table.store.clock.ms = moment
    table.write(rows([key]))


def test_a_day_gets_its_tag_with_the_first_commit_after_it(tmp_path: Path) -> None:
    table = keyed(tmp_path, tag__automatic_creation="process-time")
    write_at(table, local(2024, 1, 2, 10))
    assert tagged(table) == {"2024-01-01": 1}
    write_at(table, local(2024, 1, 2, 20))
    assert tagged(table) == {"2024-01-01": 1}
    write_at(table, local(2024, 1, 3, 0, 5))
    assert tagged(table) == {"2024-01-01": 1, "2024-01-02": 3}
    write_at(table, local(2024, 1, 7, 1))  # periods without a commit have no tag
    assert tagged(table) == {"2024-01-01": 1, "2024-01-02": 3, "2024-01-06": 4}


def test_completion_names_every_period(tmp_path: Path) -> None:
    table = keyed(tmp_path, tag__automatic_creation="process-time", tag__automatic_completion="true")
    for day in (2, 5, 5, 5):
        write_at(table, local(2024, 1, day, 1))
    assert tagged(table) == {"2024-01-01": 1, "2024-01-02": 2, "2024-01-03": 3, "2024-01-04": 4}


def test_a_delay_waits_and_an_hour_can_be_a_period(tmp_path: Path) -> None:
    table = keyed(
        tmp_path,
        tag__automatic_creation="process-time",
        tag__creation_period="hourly",
        tag__creation_delay="10 min",
        tag__period_formatter="without_dashes_and_spaces",
        tag__default_time_retained="2 d",
        tag__create_success_file="true",
    )
    write_at(table, local(2024, 1, 2, 10))
    write_at(table, local(2024, 1, 2, 11, 5))
    assert tagged(table) == {"2024010209": 1}
    write_at(table, local(2024, 1, 2, 11, 10))
    assert tagged(table) == {"2024010209": 1, "2024010210": 3}
    assert table.tags()["2024010210"].time_retained_ms == 2 * DAY
    assert (Path(table.store.root) / "tag" / "tag-success-file" / "2024010210_SUCCESS").is_file()


def test_only_so_many_automatic_tags_stay(tmp_path: Path) -> None:
    table = keyed(tmp_path, tag__automatic_creation="process-time", tag__num_retained_max="2")
    write_at(table, local(2024, 1, 2))
    table.create_tag("mine", 1)
    for day in range(3, 7):
        write_at(table, local(2024, 1, day))
    assert tagged(table) == {"mine": 1, "2024-01-04": 4, "2024-01-05": 5}
    gone = [entry.report["tags"] for entry in table.ledger() if entry.action == "expire_tags"]
    assert gone == [["2024-01-01"], ["2024-01-02"], ["2024-01-03"]]
    assert_whole(table)


def test_watermarks_are_read_in_their_zone(tmp_path: Path) -> None:
    noon = int(datetime(2024, 1, 1, 20, tzinfo=UTC).timestamp() * 1000)
    for number, (zone, name) in enumerate(
        {"UTC": "2023-12-31", "+08:00": "2024-01-01", "Asia/Shanghai": "2024-01-01", "UTC-21": "2023-12-30"}.items()
    ):
        options = {"tag__automatic_creation": "watermark", "sink__watermark_time_zone": zone}
        table = keyed(tmp_path, name=f"db.z{number}", **options)
        table.write(rows([1]))
        assert tagged(table) == {}  # no watermark yet
        with table.new_write() as writer:
            writer.write(rows([2]))
            Committer(table.store).commit(writer.prepare_commit(), watermark=noon)
        table.write(rows([3]))
        assert tagged(table) == {name: 2}
    wrong = keyed(tmp_path, name="db.w", tag__automatic_creation="watermark", sink__watermark_time_zone="Nowhere/Land")
    with wrong.new_write() as writer:
        writer.write(rows([2]))
        Committer(wrong.store).commit(writer.prepare_commit(), watermark=noon)
    wrong.write(rows([3]))
    assert tagged(wrong) == {}


def test_a_batch_moves_its_tag_of_the_day(tmp_path: Path) -> None:
    table = keyed(tmp_path, tag__automatic_creation="batch", tag__num_retained_max="2")
    write_at(table, local(2024, 1, 2, 1))
    write_at(table, local(2024, 1, 2, 2))
    assert tagged(table) == {"batch-write-2024-01-02": 2}
    table.delete([("k", "=", 1)])
    assert tagged(table) == {"batch-write-2024-01-02": 3}
    commit = table.new_stream_commit("job")
    with table.new_stream_write("job") as writer:
        writer.write(rows([5]))
        commit.commit(writer.prepare_commit(commit_identifier=1), 1)
    assert tagged(table) == {"batch-write-2024-01-02": 3}  # a stream is no batch
    table.copy({"tag.batch.customized-name": "nightly"}).write(rows([6]))
    write_at(table, local(2024, 1, 4))
    assert tagged(table) == {"nightly": 5, "batch-write-2024-01-04": 6}
    assert_whole(table)


def test_writers_that_only_write_leave_it_to_the_compaction(tmp_path: Path) -> None:
    table = keyed(tmp_path, tag__automatic_creation="process-time", write_only="true")
    for day in (2, 3):
        write_at(table, local(2024, 1, day))
    assert tagged(table) == {}
    table.compact(full=True)
    assert tagged(table) == {"2024-01-01": 1, "2024-01-02": 2}


def test_a_commit_is_done_whatever_becomes_of_its_tag(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    table = keyed(tmp_path, tag__automatic_creation="process-time")
    (Path(table.store.root) / "tag").write_text("in the way")
    with caplog.at_level(logging.WARNING):
        write_at(table, local(2024, 1, 2))
    assert "db.t: the commit is done, but automatic tags were not made" in caplog.text
    (Path(table.store.root) / "tag").unlink()
    write_at(table, local(2024, 1, 2, 1))
    assert tagged(table) == {"2024-01-01": 1}


def test_a_delay_of_a_period_is_refused(tmp_path: Path) -> None:
    options = {"tag__automatic_creation": "process-time", "tag__creation_period": "hourly"}
    with pytest.raises(InvalidOption, match=r"tag\.creation-delay.*less than the period"):
        keyed(tmp_path, tag__creation_delay="1 h", **options)
    with pytest.raises(InvalidOption, match=r"tag\.creation-period-duration.*at least 1 min"):
        keyed(tmp_path, tag__creation_period_duration="1 s", **options)
