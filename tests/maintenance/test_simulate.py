"""A simulation picks what the table's own rules pick, and replays nothing but what writers did."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from lsm_core import Schema, Table
from lsm_core.errors import InvalidOption, SnapshotNotFound
from lsm_core.format.snapshot import CommitKind
from lsm_core.maintenance import SimulatedPolicy
from tests.maintenance.tables import HOUR, NOW, catalog, keyed, rows

_ROWS = 600


def lived(table: Table, commits: int, *, compacting: bool = False, disjoint: bool = False) -> Table:
    """Commits an hour apart, each followed by the compaction that the table's rules pick."""
    for step in range(commits):
        start = step * _ROWS if disjoint else step
        # values that do not compress: of small files most bytes would be the footer's
        values = np.random.default_rng(step).integers(0, 2**62, _ROWS)
        table.write(rows(range(start, start + _ROWS)).set_column(1, "v", pa.array(values)))
        if compacting:
            table.compact()
        table.store.clock.advance(HOUR)  # type: ignore[attr-defined]
    return table


def compactions(table: Table) -> int:
    return sum(snapshot.commit_kind is CommitKind.COMPACT for snapshot in table.snapshots())


@pytest.mark.parametrize(("trigger", "disjoint"), [("3", True), ("2", False)])
def test_a_replay_of_a_table_that_was_compacted_after_each_commit_makes_the_same_compactions(
    tmp_path: Path, trigger: str, disjoint: bool
) -> None:
    table = lived(keyed(tmp_path, num_sorted_run__compaction_trigger=trigger), 9, compacting=True, disjoint=disjoint)
    (found,) = table.simulate().to_pylist()
    assert found["policy"] == "as it is"
    assert found["compactions"] == compactions(table) > 0
    assert found["runs_at_end"] == table.health()[0].sorted_runs
    assert found["commits"] == 9
    written = sum(row["bytes_in"] for row in (entry.report for entry in table.ledger()))
    assert found["bytes_read"] == pytest.approx(written, rel=0.1)
    assert len(found["runs_over_time"]) == len(found["rewritten_over_time"]) == 60
    assert sum(found["rewritten_over_time"]) == found["bytes_rewritten"]
    # what was compacted meanwhile is forgotten
    (never,) = table.simulate([{"num-sorted-run.compaction-trigger": "50"}]).to_pylist()
    assert (never["policy"], never["level0_peak"], never["runs_at_end"]) == ("policy 1", 9, 9)


def test_a_lower_trigger_rewrites_more_and_lets_readers_meet_fewer_runs(tmp_path: Path) -> None:
    table = lived(keyed(tmp_path, write_only="true"), 16)
    before = table.latest_snapshot()
    found = table.simulate(
        {
            "eager": {"num-sorted-run.compaction-trigger": 2},
            "lazy": {"options": {"num-sorted-run.compaction-trigger": "8"}},
            "never": {"num-sorted-run.compaction-trigger": 1000},
            "nightly": {"num-sorted-run.compaction-trigger": 2, "look_every": "8 h"},
        }
    )
    eager, lazy, never, nightly = found.to_pylist()
    assert [row["policy"] for row in (eager, lazy, never, nightly)] == ["eager", "lazy", "never", "nightly"]
    assert eager["write_amplification"] > lazy["write_amplification"] > never["write_amplification"] == 1.0
    assert eager["mean_runs"] < lazy["mean_runs"] < never["mean_runs"]
    assert eager["p95_runs"] <= lazy["p95_runs"] <= never["p95_runs"] <= never["level0_peak"] == 16
    assert (never["compactions"], never["bytes_rewritten"], never["cost_seconds"]) == (0, 0, 0.0)
    assert 1 <= nightly["compactions"] <= 3 < eager["compactions"]
    assert eager["cost_seconds"] > 0
    assert table.latest_snapshot() == before


def test_idle_buckets_are_merged_once_and_only_while_a_window_is_open(tmp_path: Path) -> None:
    table = keyed(tmp_path, partitioned=True, write_only="true")
    for step in range(3):
        table.write(rows(range(20), v=step, dt="a"))
        table.store.clock.advance(HOUR)  # type: ignore[attr-defined]
    for step in range(12):
        table.write(rows(range(20), v=step, dt="b"))
        table.store.clock.advance(HOUR)  # type: ignore[attr-defined]
    calm = {"num-sorted-run.compaction-trigger": "100"}
    (idle,) = table.simulate([{**calm, "idle_after": "10 h"}]).to_pylist()
    assert (idle["compactions"], idle["level0_peak"]) == (1, 12)
    closed = SimulatedPolicy("closed", calm, idle_after_ms=10 * HOUR, next_open=lambda _: None)
    assert table.simulate([closed]).column("compactions").to_pylist() == [0]


def test_append_tables_are_replayed_by_their_bins_and_overwrites_empty_what_was_there(tmp_path: Path) -> None:
    log = catalog(tmp_path).create_table(
        "db.log", Schema(pa.schema([("v", pa.int64())]), options={"bucket": "-1", "write-only": "true"})
    )
    for step in range(12):
        log.write(pa.table({"v": [step]}))
        log.store.clock.advance(HOUR)  # type: ignore[attr-defined]
    (found,) = log.simulate().to_pylist()
    assert found["compactions"] == 2 and found["level0_peak"] == 5
    log.write(pa.table({"v": [1]}), overwrite=True)
    (found,) = log.simulate([{"compaction.min.file-num": "100"}]).to_pylist()
    assert (found["level0_peak"], found["runs_at_end"]) == (12, 1)


def test_a_history_may_begin_behind_the_first_snapshot_and_is_refused_by_name(tmp_path: Path) -> None:
    table = lived(keyed(tmp_path, write_only="true"), 10)
    (found,) = table.simulate([{"num-sorted-run.compaction-trigger": "50"}], history=(6, 8)).to_pylist()
    assert (found["commits"], found["level0_peak"], found["runs_at_end"]) == (3, 8, 8)
    table.expire_snapshots(retain_max=3, retain_min=3, older_than_ms=2**62)
    (found,) = table.simulate([{"num-sorted-run.compaction-trigger": "50"}]).to_pylist()
    assert (found["commits"], found["runs_at_end"]) == (2, 10)
    with pytest.raises(SnapshotNotFound):
        table.simulate(history=(1, 9))
    with pytest.raises(InvalidOption, match="the older one first"):
        table.simulate(history=(9, 8))
    for wrong, word in [
        ({"num-sorted-run.compaction-triger": "5"}, "compaction-triger"),
        ({"look_every": "often"}, "look_every"),
        ({"look_every": 0}, "look_every"),
        ({"idle_min_runs": "two"}, "idle_min_runs"),
        ({"bucket": "7"}, "bucket"),
        ("text", "policy"),
    ]:
        with pytest.raises(InvalidOption, match=word):
            table.simulate([wrong])  # type: ignore[list-item]
    with pytest.raises(InvalidOption, match="a table with snapshots"):
        keyed(tmp_path, name="db.empty").simulate()


def test_the_worst_week_is_that_of_a_burst_and_the_mean_that_of_all_weeks(tmp_path: Path) -> None:
    table = keyed(tmp_path, write_only="true")
    for day in range(40):
        commits = 6 if 20 <= day < 27 else 1
        for number in range(commits):
            table.write(rows(range(5), v=day * 10 + number))
            table.store.clock.advance(24 * HOUR // commits)  # type: ignore[attr-defined]
    weekly = {"num-sorted-run.compaction-trigger": 2, "look_every": "7 d"}
    (row,) = table.simulate([weekly]).to_pylist()
    assert row["worst_week_runs"] > 2 * row["mean_runs"] > 0
    # 20 to 26 are the days of the burst, whose files wait for the look at the end of day 27.
    start = (row["worst_week_start_ms"] - NOW) / (24 * HOUR)
    assert 20 <= start <= 22
    assert 0 < row["worst_week_rewritten"] < row["bytes_rewritten"]
    # A history of less than a week is one week: its mean.
    (short,) = table.simulate([{"num-sorted-run.compaction-trigger": 2}], (1, 4)).to_pylist()
    assert short["worst_week_runs"] == pytest.approx(short["mean_runs"], abs=0.01)
    assert short["worst_week_rewritten"] == short["bytes_rewritten"] > 0
