"""What `watch` finds is decided from plain values: each finding at its limit and only there, with its numbers and what to do."""

from __future__ import annotations

import re
import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from dredge.checks.layout_condition import condition_result
from dredge.platform_core.health import PartitionHealth, TableHealth, table_health
from dredge.platform_core.policies import Now, TableFacts
from dredge.platform_core.policies.decisions import DAY_MS, Backlog, DueWork, backlog_of, due_work
from dredge.platform_core.policies.findings import (
    HOUR_MS,
    AlertCondition,
    Finding,
    Severity,
    find_backlog,
    find_history,
    find_late_data,
    find_pause,
    find_small_files,
    find_stall,
)
from dredge.platform_core.policies.policy import Policy, WatchLimits
from dredge.platform_core.policies.table_state import Condition as TableCondition
from dredge.platform_core.policies.table_state import TableState, judge_condition
from dredge.platform_core.policies.windows import OffPeak
from lsm_core.clock import FixedClock
from lsm_core.maintenance import CheckLimits
from lsm_core.maintenance.checks.layout_condition import Condition, judge_file_size, judge_small_files
from lsm_core.maintenance.history_health import HistoryHealth
from lsm_core.options import TableOptions
from tests.support.platform import bucket_health, commit, keyed_table

NOW = 1_700_000_000_000
POLICY = Policy()


def _state(text: str = "", **changes: object) -> PartitionHealth:
    return PartitionHealth(text, (bucket_health(text, 0, **changes), bucket_health(text, 1)))


@pytest.mark.parametrize(
    ("files", "severity", "word"),
    [
        (998, None, ""),
        (1_000, Severity.WARN, "WARN: 1,000 level-0 files >= 1,000 in dt=b"),
        (10_000, Severity.ERROR, "CRITICAL: 10,000 level-0 files >= 10,000 in dt=b; `dredge recover a.b`"),
        (100_000, Severity.EMERGENCY, "EMERGENCY: 100,000 level-0 files >= 100,000"),
    ],
)
def test_level_0_is_told_at_its_three_limits(files: int, severity: Severity | None, word: str) -> None:
    found = find_backlog("a.b", [_state("dt=a"), _state("dt=b", level0_files=files)], POLICY)
    assert [item.severity for item in found] == ([severity] if severity else [])
    assert not found or word in found[0].line()
    worse = find_backlog("a.b", [_state("dt=b", level0_files=files + 1)], POLICY)
    assert [item.key for item in worse] == [item.key for item in found]  # a number more is no other alert


def _append_findings(*states: PartitionHealth) -> list[Finding]:
    condition = Condition(
        [item for state in states for item in state.buckets], NOW, keyed=False, file_bytes=256 << 20, trigger=5
    )
    return find_small_files(
        "a.b", judge_small_files(condition, CheckLimits()), judge_file_size(condition, CheckLimits())
    )


def test_the_small_files_of_an_append_table_are_told_as_level_0_is() -> None:
    def state(files: int, size: int = 1_000) -> PartitionHealth:
        shape = {"files": files, "small_files": files, "bytes_per_level": {0: files * size}}
        return PartitionHealth("dt=b", (bucket_health("dt=b", 0, sorted_runs=0, level0_files=files, **shape),))

    assert _append_findings(state(40)) == []
    (found,) = _append_findings(state(1_000))
    assert found.line() == (
        "a.b: warn (small files pile up): 1,000 small files >= 1,000 in dt=b; `dredge compact a.b` gathers them"
    )
    assert _append_findings(state(10_000))[0].severity is Severity.ERROR
    (found,) = _append_findings(state(60))
    assert (found.trouble, found.severity) == (AlertCondition.FILE_SIZE, Severity.WARN) and "60 files" in found.text
    watch = replace(POLICY.watch, small_files=10, small_files_critical=20)
    level = backlog_of([state(15)], replace(POLICY, watch=watch), append_only=True)
    assert level == (Backlog.WARN, 15, "dt=b")


def _due(
    *states: PartitionHealth, policy: Policy = POLICY, append: bool = False, now: int = NOW, **options: str
) -> dict[str, DueWork]:
    buckets = tuple(bucket for state in states for bucket in state.buckets)
    facts = TableFacts(
        "a.b",
        TableHealth("a.b", 1, 1, now, buckets),
        TableOptions(options, "a.b"),
        append_only=append,
        partitioned=True,
    )
    return due_work(facts, lambda _: policy, Now(now, now))


def test_something_due_for_long_and_nothing_compacted_since_is_a_stall() -> None:
    waiting = _state("dt=a", oldest_level0_ms=NOW - 13 * HOUR_MS, cost_minor=5, sorted_runs=9)
    (found,) = find_stall("a.b", _due(waiting), POLICY, NOW)
    assert found.trouble is AlertCondition.STALLED
    assert found.text == "nothing was compacted for 13 h >= 12 h in dt=a, and work is due: 9 sorted runs >= 5"
    assert find_stall("a.b", {}, POLICY, NOW) == []
    assert find_stall("a.b", _due(waiting, now=NOW - 2 * HOUR_MS), POLICY, NOW - 2 * HOUR_MS) == []
    at_work = _state("dt=a", oldest_level0_ms=NOW - 13 * HOUR_MS, last_compaction_ms=NOW - HOUR_MS, cost_minor=5)
    assert find_stall("a.b", _due(at_work), POLICY, NOW) == []
    patient = replace(POLICY, watch=WatchLimits(stalled_after_ms=2 * DAY_MS))
    assert find_stall("a.b", _due(waiting, policy=patient), patient, NOW) == []
    paused = replace(POLICY, paused="move")
    assert find_stall("a.b", _due(waiting, policy=paused), paused, NOW)[0].text.endswith("paused by policy: move")


@pytest.mark.parametrize("append", [False, True])
def test_an_idle_partition_that_nobody_merged_is_overdue_once_its_window_was_open_for_long(append: bool) -> None:
    idle = _state("dt=a", sorted_runs=3, small_files=9, newest_file_ms=NOW - 20 * DAY_MS - 13 * HOUR_MS)
    (found,) = find_stall("a.b", _due(idle, append=append), POLICY, NOW)
    assert found.text.startswith("nothing was compacted for 13 h >= 12 h in dt=a, and work is due: idle 20 d")
    done = _state("dt=a", sorted_runs=3, small_files=9, newest_file_ms=1, last_compaction_ms=NOW - HOUR_MS)
    assert find_stall("a.b", _due(done, append=append), POLICY, NOW) == []
    # NOW is 22:13 UTC: by its hours it could have begun 13 minutes ago, or an hour and a day ago
    for begins, stalls in (("22:00", 0), ("09:00", 1)):
        hours = OffPeak.model_validate({"time_zone": "UTC", "windows": [{"from": begins, "to": "22:30"}]})
        off_peak = replace(POLICY, off_peak=hours)
        assert len(find_stall("a.b", _due(idle, policy=off_peak, append=append), off_peak, NOW)) == stalls


def test_partitions_about_to_expire_are_no_stall() -> None:
    kept = {"partition.expiration-time": "10 d", "partition.expiration-strategy": "update-time"}
    going = _state("dt=a", sorted_runs=9, cost_minor=5, oldest_level0_ms=1, newest_file_ms=NOW - 10 * DAY_MS + HOUR_MS)
    assert _due(going, **kept) == {} and set(_due(going)) == {"dt=a"}


def test_maintenance_alive_does_not_alarm_for_partitions_about_to_expire(tmp_path: Path) -> None:
    kept = {"partition.expiration-time": "10 d", "partition.expiration-strategy": "update-time"}
    for name, options in (("shop.going", kept), ("shop.staying", {})):
        table = keyed_table(tmp_path, name, **options)
        commit(table, 6)
        store = table.store.copy({})
        store.clock = FixedClock(max(bucket.newest_file_ms or 0 for bucket in table.health()) + 10 * DAY_MS - HOUR_MS)
        found = condition_result(store, table_health(store), POLICY, ["maintenance_alive"])
        assert found.passed == (name == "shop.going"), found.description


def test_a_pause_is_told_when_it_says_since_when() -> None:
    paused = replace(POLICY, paused="storage move", paused_since_ms=NOW - 31 * DAY_MS)
    (found,) = find_pause("a.b", paused, NOW)
    assert found.text == "for 31 d >= 30 d: storage move (built-in default)"
    assert find_pause("a.b", paused, NOW - 2 * DAY_MS) == []
    assert find_pause("a.b", replace(paused, paused_since_ms=None), NOW) == []
    assert find_pause("a.b", replace(paused, paused=None), NOW) == []


def test_a_history_that_does_not_shrink_says_what_holds_it() -> None:
    assert find_history("a.b", HistoryHealth(snapshots=50_000, tags=100, small_manifests=499), POLICY, NOW) == []
    debt = HistoryHealth(
        snapshots=70, earliest_ms=NOW - 3 * DAY_MS, overdue=40, held=20, gaps=((4, 6), (9, 9)), tags=101,
        overdue_tags=("old",), consumers=2, consumer="job-7", consumer_behind=60, consumer_seen_ms=NOW - 9 * DAY_MS,
        manifests=700, small_manifests=500,
    )  # fmt: skip
    found = {finding.trouble: finding.text for finding in find_history("a.b", debt, POLICY, NOW)}
    assert set(found) == {
        AlertCondition.SNAPSHOTS,
        AlertCondition.CONSUMER,
        AlertCondition.GAP,
        AlertCondition.TAGS,
        AlertCondition.MANIFESTS,
    }
    assert found[AlertCondition.SNAPSHOTS].startswith(
        "40 of 70 snapshots were to expire 24 h ago or longer; the oldest is of "
    )
    assert found[AlertCondition.CONSUMER].startswith(
        "consumer 'job-7', last seen 9 d ago, has yet to read 60 snapshots and keeps 20 "
    )
    assert (
        found[AlertCondition.GAP].startswith("4..6 (and 1 more gaps)")
        and "`dredge repair a.b`" in found[AlertCondition.GAP]
    )
    assert "101 tags (limit 100), 1 of them past their expiry time (old)" in found[AlertCondition.TAGS]
    assert found[AlertCondition.MANIFESTS].startswith("500 of 700 manifests are small")


def test_late_data_are_shown_and_alert_nobody() -> None:
    late = _state("dt=a", oldest_level0_ms=NOW, last_compaction_ms=NOW - 25 * DAY_MS)
    (found,) = find_late_data("a.b", [late, _state("dt=b")], POLICY)
    assert (found.severity, found.trouble) == (Severity.INFO, AlertCondition.LATE_DATA)
    assert found.text.startswith("dt=a was written to 25 d after its last compaction")
    soon = _state("dt=a", oldest_level0_ms=NOW, last_compaction_ms=NOW - 19 * DAY_MS)
    assert find_late_data("a.b", [soon], POLICY) == []


def test_commands_in_findings_and_states_survive_a_shell() -> None:
    odd = "shop.it's; ls$branch_b"
    debt = HistoryHealth(
        20, NOW, 12, tags=200, gaps=((3, 4),), small_manifests=900, manifests=900, consumer="c", consumer_behind=3,
        held=4,
    )  # fmt: skip
    backlog = find_backlog(odd, [_state("dt=b", level0_files=10_000)], POLICY)
    texts = [finding.text for finding in (*find_history(odd, debt, POLICY, NOW), *backlog)]
    texts += [judge_condition(odd, TableCondition(TableState.CORRUPT, "CorruptFile: x")).action]
    commands = [part for text in texts for part in re.findall(r"`(dredge .*?)`", text)]
    assert len(commands) == 7
    assert all(odd in shlex.split(command) for command in commands)
