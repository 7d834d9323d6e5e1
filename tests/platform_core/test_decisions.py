"""Every decision carries its number, its threshold and one sentence that a person can check."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from dredge.platform_core import names
from dredge.platform_core.health import PartitionHealth, TableHealth
from dredge.platform_core.policies import DecisionOutcome, DecisionScope, Now, Policy, Reason, TableFacts, decide_all
from dredge.platform_core.policies.decisions import (
    DAY_MS,
    HOUR_MS,
    Backlog,
    backlog_of,
    decide_idle,
    decide_sorted_runs,
)
from lsm_core.maintenance.action import size_text
from lsm_core.options import TableOptions
from tests.support.platform import bucket_health


def state(text: str = "dt=1", **changes: Any) -> PartitionHealth:
    values: dict[str, Any] = {
        "sorted_runs": 4, "level0_files": 3, "files": 9, "small_files": 9, "bytes_per_level": {0: 53_248}, "rows": 4_155,
        "deletes": 253, "newest_file_ms": 100 * DAY_MS,
    }  # fmt: skip
    return PartitionHealth(text, (bucket_health(text, **{**values, **changes}),))


def test_a_healthy_table_is_left_alone_with_its_numbers() -> None:
    decision = decide_sorted_runs("nyc.planes", state(text=""), 5)
    assert decision.outcome is DecisionOutcome.DECLINE
    assert decision.reason is Reason.TOO_FEW_RUNS
    assert decision.line().startswith("nyc.planes: decline (too few runs): 4 sorted runs < 5; 52 KiB; ")
    assert "253 deletes" in decision.text
    assert "4,155 rows: not worth a run" in decision.text


def test_one_run_is_nothing_to_merge() -> None:
    assert "nothing to merge" in decide_sorted_runs("a.b", state(sorted_runs=1), 5).text


def test_the_fifth_run_asks_for_a_compaction() -> None:
    decision = decide_sorted_runs("a.b", state(sorted_runs=5), 5)
    assert (decision.outcome, decision.number, decision.threshold) == (DecisionOutcome.RUN, 5, 5)


def test_the_tables_own_early_rules_ask_below_the_trigger() -> None:
    assert decide_sorted_runs("a.b", state(sorted_runs=2, cost_minor=900), 5).outcome is DecisionOutcome.RUN


@pytest.mark.parametrize(
    ("runs", "level0", "silent", "options", "outcome", "words"),
    [
        (3, 2, 0, {}, DecisionOutcome.DECLINE, "its writers compact: watching"),
        (
            6,
            5,
            59,
            {},
            DecisionOutcome.DECLINE,
            "watching (a run starts at 8 sorted runs or 60 min after their last commit)",
        ),
        (8, 7, 0, {}, DecisionOutcome.RUN, "its writers fell behind (8 sorted runs >= stop trigger 8)"),
        (8, 7, 0, {"num-sorted-run.stop-trigger": "20"}, DecisionOutcome.DECLINE, "at 20 sorted runs"),
        (
            20,
            7,
            0,
            {"num-sorted-run.stop-trigger": "2147483647"},
            DecisionOutcome.RUN,
            "(20 sorted runs >= 4 x trigger 20)",
        ),
        (6, 5, 9, {"deletion-vectors.enabled": "true"}, DecisionOutcome.DECLINE, "its writers compact: watching"),
        (
            6,
            5,
            10,
            {"merge-engine": "first-row"},
            DecisionOutcome.RUN,
            "rows that no reader sees uncompacted for 10 min >= 10",
        ),
        (6, 1_000, 0, {}, DecisionOutcome.RUN, "its writers fell behind (backlog WARN)"),
        (6, 5, 61, {}, DecisionOutcome.RUN, "its writers are silent (61 min without a commit >= 60)"),
    ],
)
def test_a_table_that_its_writers_compact_is_watched_until_they_fall_behind(
    runs: int, level0: int, silent: int, options: dict[str, str], outcome: DecisionOutcome, words: str
) -> None:
    now = 100 * DAY_MS
    written = now - silent * HOUR_MS // 60
    bucket = bucket_health("", sorted_runs=runs, level0_files=level0, newest_file_ms=written, oldest_level0_ms=written)
    facts = TableFacts(
        "a.b", TableHealth("a.b", 1, 1, now, (bucket,)), TableOptions(options, "a.b"), writers_compact=True
    )
    (decision,) = decide_all(facts, DecisionScope.SORTED_RUNS, lambda _: Policy(), Now(now, now))
    assert (decision.outcome, words in decision.text) == (outcome, True), decision.text
    assert decision.reason in {Reason.WATCHING, Reason.TOO_FEW_RUNS, Reason.TRIGGER_REACHED}
    alone = decide_all(
        replace(facts, writers_compact=False), DecisionScope.SORTED_RUNS, lambda _: Policy(), Now(now, now)
    )
    assert alone[0].outcome is (DecisionOutcome.DECLINE if runs < 5 else DecisionOutcome.RUN)


@pytest.mark.parametrize(
    ("append", "changes", "age", "outcome", "reason", "words"),
    [
        (
            False,
            {"sorted_runs": 2},
            36,
            DecisionOutcome.RUN,
            Reason.IDLE,
            "idle 36 d >= 20 d, 2 sorted runs >= 2: full compaction",
        ),
        (False, {"sorted_runs": 2}, 6, DecisionOutcome.DECLINE, Reason.NOT_IDLE, "idle 6 d < 20 d"),
        (
            False,
            {"sorted_runs": 1},
            96,
            DecisionOutcome.DECLINE,
            Reason.ONE_RUN,
            "one run per bucket: nothing to merge",
        ),
        (True, {"small_files": 18}, 24, DecisionOutcome.RUN, Reason.IDLE, "18 small files >= 5"),
        (True, {"small_files": 3}, 96, DecisionOutcome.DECLINE, Reason.TOO_FEW_FILES, "3 small files < 5"),
    ],
)
def test_idle_partitions_are_merged_once(
    append: bool, changes: dict[str, int], age: int, outcome: DecisionOutcome, reason: Reason, words: str
) -> None:
    now = (100 + age) * DAY_MS
    decision = decide_idle("a.b", state(**changes), Policy(), append=append, now_ms=now)
    assert (decision.outcome, decision.reason) == (outcome, reason)
    assert words in decision.text
    assert decision.full is (outcome is DecisionOutcome.RUN)


@pytest.mark.parametrize(
    ("files", "level"), [(9, Backlog.OK), (10, Backlog.WARN), (19, Backlog.WARN), (20, Backlog.CRITICAL)]
)
def test_the_backlog_grows_from_ok_to_critical(files: int, level: Backlog) -> None:
    policy = Policy(level0_warn=10, level0_critical=20)
    assert backlog_of([state(level0_files=files), state(level0_files=1)], policy) == (level, files, "dt=1")


def test_sizes_read_well() -> None:
    assert [size_text(n) for n in (0, 1023, 1536, 53_248, 3 << 30)] == ["0 B", "1023 B", "1.5 KiB", "52 KiB", "3.0 GiB"]


def test_names_never_collide_and_always_fit() -> None:
    odd = ["db.a-b", "db.a_b", "db.a b", "d.b__x", "d.config", "d.Ä", "d." + "x" * 200]
    jobs = {names.WarehouseNames.of("").op_name("maintain", table) for table in odd}
    assert len(jobs) == len(odd)
    assert all(job.replace("_", "a").isalnum() and job.isascii() for job in jobs)
    assert (
        names.WarehouseNames.of("/tmp/my warehouse").data_key("db.a-b").path
        != names.WarehouseNames.of("/tmp/my warehouse").data_key("db.a_b").path
    )
    assert all(len(names.tag_value(table)) <= 63 for table in odd)


def test_the_run_key_names_table_partition_snapshot_and_plan() -> None:
    assert names.run_key("nyc.flights", "m=1", 12, "abc") == "nyc.flights/m=1@12:abc"
    assert names.run_key("nyc.planes", None, 4, "abc") == "nyc.planes@4:abc"


def test_an_idle_partition_of_which_rows_are_marked_as_deleted_is_compacted_however_few_its_files() -> None:
    idle = state("dt=a", small_files=1, newest_file_ms=0, cost_minor=10, deleted_rows=300)
    decision = decide_idle("db.log", idle, Policy(), append=True, now_ms=400 * DAY_MS)
    assert (decision.outcome, decision.full) == (DecisionOutcome.RUN, True)
    assert "300 deleted rows: full compaction" in decision.text
    idle = state("dt=a", small_files=1, newest_file_ms=0, deleted_rows=3)
    assert decide_idle("db.log", idle, Policy(), append=True, now_ms=400 * DAY_MS).outcome is DecisionOutcome.DECLINE
