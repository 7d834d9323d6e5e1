"""Reports on invented fleets, for tests of the report's page."""

from __future__ import annotations

from collections.abc import Sequence

from dredge.platform_core.report.model import (
    ActionEntry,
    FleetReport,
    HolderEntry,
    PartitionEntry,
    Severity,
    StateLegend,
    TableReport,
)

NOW_MS = 1_795_753_572_000
STATES = (
    StateLegend("corrupt", Severity.CRITICAL, "a metadata or data file is damaged or missing"),
    StateLegend("blocked", Severity.CRITICAL, "a blocking check failed: nothing is compacted, nothing expires"),
    StateLegend("waiting for approval", Severity.ATTENTION, "a plan waits for a person's approval"),
    StateLegend("paused", Severity.ATTENTION, "the policy or a replay stops compactions"),
    StateLegend("due", Severity.ATTENTION, "work is due and starts at the next tick, or in its turn"),
    StateLegend("running", Severity.WORKING, "a run is queued or at work"),
    StateLegend("healthy", Severity.HEALTHY, "nothing is due"),
)
_HOUR = 3_600_000
RUN = "0f9d2c5e-2a61-4b4e-9a53-6d5a9c1e7b10"


def invented_fleet(number: int, actions: int = 8) -> FleetReport:
    """Return a report on tables of four databases and three owners, the most urgent first."""
    tables = sorted((_table(index, actions) for index in range(number)), key=_urgency)
    return FleetReport("s3://lake/warehouse", NOW_MS, tables, STATES, dagster_url="https://dagster.example.org")


def _urgency(table: TableReport) -> tuple[int, float]:
    return [legend.name for legend in STATES].index(table.state), -table.score


def _table(index: int, actions: int) -> TableReport:
    database = ("shop", "logistics", "finance", "events")[index % 4]
    state = (
        *(["healthy"] * 14),
        "due",
        "running",
        "paused",
        "due",
        "blocked",
        "waiting for approval",
        "due",
        "corrupt",
    )[index % 22]
    score = {"healthy": index % 9, "blocked": 100.0, "corrupt": 100.0}.get(state, 20.0 + index * 7 % 70)
    texts = {
        "blocked": "tree_is_valid of dt=2026-11-26 failed: files of level 3 overlap: data-4711.parquet, data-4712.parquet",
        "corrupt": "CorruptFile: manifest-0b1c: unexpected end of file",
        "due": f"{5 + index % 7} sorted runs >= 5; waits for the budget (4 of 4 tables), place {1 + index % 9}",
        "paused": "paused by policy: storage move, since 2026-11-20 (policies.yaml:12)",
        "running": f"run {RUN[:8]} works on the table",
        "waiting for approval": "plan 3f0c waits: approval of compact is required (policies.yaml:4)",
        "healthy": f"{1 + index % 4} sorted runs < 5 (num-sorted-run.compaction-trigger)",
    }
    next_steps = {
        "blocked": (f"repair {database}.table_{index:04}, then run its checks again", "by hand"),
        "corrupt": ("restore the file, or roll back", "by hand"),
        "due": ("compact dt=2026-11-27", "as soon as a table in work ends"),
        "paused": ("end the pause, if it is over", "a critical backlog starts anyway"),
        "running": ("wait for the run", "when the run ends"),
        "waiting for approval": ("approve the plan", "by hand"),
        "healthy": ("none", "-"),
    }
    action, when = next_steps[state]
    return TableReport(
        f"{database}.table_{index:04}",
        state,
        reason=texts[state],
        action=action,
        when=when,
        since_ms=None if state == "healthy" else NOW_MS - index * 61_000,
        when_ms=NOW_MS + index * 60_000 if state == "due" else None,
        score=score,
        costs_most="" if state == "healthy" else f"dt=2026-11-27/bucket-{index % 4}: {5 + index % 7} sorted runs >= 5",
        owners=(("team:shop",), ("team:platform", "ann@example.org"), ())[index % 3],
        readable=state != "corrupt",
        sorted_runs=1 + index % 11,
        level0_files=index % 13,
        files=20 + index,
        total_bytes=(index * 7919 % 4096) * 2**20,
        rows=index * 10_007,
        due_bytes=index * 2**20 if state == "due" else 0,
        snapshots=10 + index % 40,
        last_compaction_ms=NOW_MS - (index % 50) * _HOUR,
        trend=() if state == "corrupt" else tuple((NOW_MS - (40 - i) * _HOUR, (score + i * i * (index % 5)) % 100) for i in range(40)),
        trend_of="hourly",
        spent_bytes=(index * 104_729 % 9_999) * 2**20,
        spent_seconds=index * 3.7 % 400,
        spent_more=index % 7 == 0,
        held_bytes=None if index % 4 else (index * 31 % 97) * 2**20,
        holders=() if index % 4 else tuple(HolderEntry(f"tag month-end-{i}", "tag", (9 - i) * 2**22, 2**20, NOW_MS - i * 30 * 24 * _HOUR) for i in range(3)),
        partitions=(PartitionEntry("dt=2026-11-27", "due", "6 sorted runs >= 5", "compact dt=2026-11-27", "the next tick"),) if state == "due" else (),
        entries=tuple(_action(i, index) for i in range(actions)),
        entries_more=index % 2 == 0,
        asset=f"warehouse/{database}/table_{index:04}_layout",
        run_filter=f"q%5B0%5D=tag%3Adredge%2Ftable%3D{database}.table_{index:04}",
    )  # fmt: skip


def _action(number: int, index: int) -> ActionEntry:
    failed = number % 9 == 4
    name: Sequence[str] = ("compact", "expire_snapshots", "compact", "trash", "manifests")
    action = name[number % 5]
    compacts = action == "compact"
    return ActionEntry(
        f"{NOW_MS - number * _HOUR}-{action}-{index:08x}",
        NOW_MS - number * _HOUR,
        action,
        "failed" if failed else "done",
        seconds=0.4 * number + 1,
        bytes_in=2**20 * (index + number) if compacts else None,
        bytes_out=2**19 * (index + number) if compacts else None,
        bytes_freed=None if compacts else 2**20 * number,
        runs_before=6 if compacts else None,
        runs_after=1 if compacts else None,
        author="dredge@worker-1, process 4711" if number % 2 else f"dagster run {RUN}",
        dagster_run="" if number % 2 else RUN,
        error="StorageFull: no space left on device" if failed else "",
    )
