"""A round over many tables decides as sensors do: the same reasons for the same tables, hours and budgets where nobody asked for it, and again before each plan is applied."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from pathlib import Path

import pytest

from dredge.platform_core.health import table_health
from dredge.platform_core.policies.budgets import Budget
from dredge.platform_core.policies.decisions import NOTHING_KNOWN, History
from dredge.platform_core.policies.policy_files import parse_policies
from dredge.platform_core.policies.rounds import Round
from dredge.platform_core.policies.windows import DAYS
from lsm_core import Catalog, SchemaChange
from lsm_core.maintenance.combined import CombinedPlan
from tests.support.platform import append_table, commit, keyed_table

FAR_DAY = DAYS[(datetime.datetime.now(datetime.UTC).weekday() + 3) % 7]
CLOSED = f"off_peak: {{time_zone: UTC, windows: [{{from: '00:00', to: '24:00', days: [{FAR_DAY}]}}]}}"


def due_tables(root: Path) -> Catalog:
    """Tables that are due: one with a partition that is and one that is not, one without partitions, and a log."""
    parted = keyed_table(root, "shop.parted")
    for _ in range(6):
        commit(parted, 1, day="a")
    commit(parted, 1, day="b")
    commit(keyed_table(root, "shop.plain", partitioned=False), 6)
    commit(append_table(root, "shop.log"), 6)
    return Catalog(str(root))


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Catalog:
    """Those tables, which no test changes."""
    return due_tables(tmp_path_factory.mktemp("round"))


def planned(
    catalog: Catalog, rules: Round, *actions: str
) -> tuple[dict[str, list[str]], Mapping[str, tuple[str, str]]]:
    """Actions by table, in their order, and reason and text by what is left alone."""
    made: CombinedPlan = catalog.plan_maintenance("shop", actions or ("compact",), save=False, rules=rules)
    found: dict[str, list[str]] = {}
    for item in made.items:
        found.setdefault(item.table, []).append(item.action)
    return found, {element.subject: (element.reason, element.text) for element in made.declined}


def of(text: str, **changes: object) -> Round:
    return Round(parse_policies(text, "p.yaml"), **changes)  # type: ignore[arg-type]


def test_what_the_tables_rules_ask_for_is_planned_and_the_rest_has_the_sensors_reasons(catalog: Catalog) -> None:
    found, left = planned(catalog, Round())
    assert found == {"shop.parted": ["compact"], "shop.plain": ["compact"], "shop.log": ["compact"]}
    assert left["shop.parted"][0] == "nothing" and "1 sorted run < 5" in left["shop.parted"][1]
    (parted,) = catalog.plan_maintenance("shop.parted", ["compact"], save=False, rules=Round()).items
    assert parted.reason.startswith("6 sorted runs >= 5")

    text = f"""
tables:
  shop.plain: {{paused: move}}
  shop.parted: {{level0_critical: 6, paused: move}}
  shop.log: {{{CLOSED}}}
"""
    found, left = planned(catalog, of(text))
    assert found == {"shop.parted": ["compact"], "shop.log": ["compact"]}, "by hand no hours hold"
    assert left["shop.plain"] == ("paused by policy", "compact: 6 sorted runs (trigger 5); paused by policy: move")
    assert left["shop.parted/dt=b"][0] == "paused by policy", "the backlog of the other one is critical"
    (full,) = catalog.plan_maintenance("shop.parted", ["compact"], save=False, rules=of(text)).items
    assert "full" in full.reason, full.reason
    passes = text.replace("level0_critical: 6", "level0_critical: 6, level0_pass: 5")
    assert planned(catalog, of(passes))[0]["shop.parted"] == ["recover"]
    found, left = planned(catalog, of(text, unattended=True))
    assert found == {"shop.parted": ["compact"]}
    assert left["shop.log/dt=a"][0] == "not in its hours" and "the table's own rules pick" in left["shop.log/dt=a"][1]


def test_a_table_that_its_writers_compact_is_left_to_them_unless_somebody_asks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DREDGE_COMPACTION_INLINE", "follow")
    table = keyed_table(tmp_path, "shop.own", partitioned=False, **{"write-only": "false"})
    commit(table, 5)
    monkeypatch.setenv("DREDGE_COMPACTION_INLINE", "never")  # its writer is busy elsewhere
    commit(table, 4)
    catalog = Catalog(str(tmp_path))
    found, left = planned(catalog, Round(unattended=True))
    assert not found
    assert "5 sorted runs >= 5; its writers compact: watching (a run starts at 8 sorted runs" in left["shop.own"][1]
    assert planned(catalog, Round())[0] == {"shop.own": ["compact"]}
    commit(table, 3)
    assert planned(catalog, Round(unattended=True))[0] == {"shop.own": ["compact"]}, "8 runs: they fell behind"


def test_the_platform_steps_in_for_writers_that_fell_behind_and_watches_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Writers, platform and options take turns; ledger, decisions and the sentence on who compacts agree each time."""
    catalog = Catalog(str(tmp_path))
    table = keyed_table(tmp_path, "shop.own", partitioned=False, **{"write-only": "false"})
    rounds = Round(unattended=True)

    def write(number: int, inline: str) -> None:
        monkeypatch.setenv("DREDGE_COMPACTION_INLINE", inline)
        commit(catalog.table("shop.own"), number)

    def upkeep() -> str:
        return table_health(catalog.table("shop.own").store).upkeep

    def set_write_only(value: str) -> None:
        catalog.alter_table("shop.own", [SchemaChange.set_option("write-only", value)])

    write(4, "follow")
    assert (
        upkeep() == "its writers may compact (it is not write-only), but none did lately: a run starts at 5 sorted runs"
    )
    write(1, "follow")
    assert upkeep().startswith("its writers compact: watching (a run starts at 8 sorted runs")
    write(6, "never")
    assert not planned(catalog, rounds)[0], "7 runs: nobody is behind yet"
    write(1, "never")
    plan = catalog.plan_maintenance("shop.own", ["compact"], rules=rounds)
    (line,) = catalog.maintain(plan, rules=rounds).lines
    assert line.outcome == "done", line
    by = [entry.approved_by for entry in table.refresh().ledger() if entry.action == "compact"]
    assert by == ["writer", None]
    found, left = planned(catalog, rounds)
    assert not found and left["shop.own"][1].endswith("; its writers compact: watching"), left
    set_write_only("true")
    write(4, "follow")
    assert upkeep() == "Dredge compacts: its writers do not (write-only)"
    assert planned(catalog, rounds)[0] == {"shop.own": ["compact"]}, "5 runs, and nobody else compacts them"
    set_write_only("false")
    found, left = planned(catalog, rounds)
    assert not found and "watching" in left["shop.own"][1], "they did so within the newest 20 snapshots"
    write(1, "follow")
    assert table.refresh().health()[0].sorted_runs == 1, "the next write catches up"
    assert table.ledger()[-1].approved_by == "writer"


def test_budgets_hold_where_nobody_asked_and_what_is_at_work_counts(catalog: Catalog) -> None:
    tight = Budget(bytes_an_hour=1, spent=1, in_turn=True)
    found, left = planned(catalog, Round(unattended=True, budget=tight))
    assert not found and {reason for reason, _ in left.values()} == {"beyond the budget", "nothing"}
    crowded = Budget(concurrent_tables=1, at_work=frozenset({"shop.other"}), in_turn=True)
    assert (
        "1 of 1 tables at the same time" in planned(catalog, Round(unattended=True, budget=crowded))[1]["shop.plain"][1]
    )
    alone = Budget(concurrent_tables=1, in_turn=True)
    assert len(planned(catalog, Round(unattended=True, budget=alone))[0]) == 3, "one after the other"


def test_what_is_known_of_checks_runs_and_failures_stands_in_the_way_of_its_partition(tmp_path: Path) -> None:
    def known(table: str, partition: str) -> History:
        blocked = {"shop.parted": "blocked: files overlap"} if partition in {"dt=a", ""} else {}
        return History(
            blocked=blocked.get(table),
            at_work="0123456789" if table == "shop.plain" else None,
            suspended="suspended" if table == "shop.log" else None,
        )

    catalog = due_tables(tmp_path)
    commit(catalog.table("shop.parted"), 6, day="b")
    found, left = planned(catalog, Round(known=known))
    assert found == {"shop.parted": ["compact"], "shop.log": ["compact"]}
    assert left["shop.parted/dt=a"] == ("blocked by a failed check", "compact: blocked: files overlap")
    assert left["shop.plain"][1].endswith("; run 01234567 is working on it")
    assert "suspended" in planned(catalog, Round(unattended=True, known=known))[1]["shop.log/dt=a"][1]
    upkeep = planned(catalog, Round(known=known), "manifests", "expire_snapshots")[1]
    assert upkeep["shop.parted"][0] == "blocked by a failed check", "of any partition"


def test_retention_rests_only_where_the_pause_says_so_and_approval_is_somebodys(catalog: Catalog) -> None:
    retention = "retention: {snapshots: {retain_min: 1, retain_max: 2}}"
    paused = f"defaults: {{{retention}, paused: move}}"
    assert len(planned(catalog, of(paused), "expire_snapshots")[0]) == 3
    rests = f"defaults: {{{retention}, paused: {{reason: move, retention: true}}}}"
    assert {reason for reason, _ in planned(catalog, of(rests), "expire_snapshots")[1].values()} == {"paused by policy"}
    assert {reason for reason, _ in planned(catalog, of(paused), "manifests")[1].values()} == {"paused by policy"}
    asked = "defaults: {approval: {compact: required}}"
    reason, text = planned(catalog, of(asked))[1]["shop.plain"]
    assert (reason, text) == (
        "waits for approval",
        "compact: approval of compact is required (p.yaml:1, defaults): say who approves it with --approved-by",
    )
    assert len(planned(catalog, of(asked, approved=True))[0]) == 3


def test_each_plan_is_decided_once_more_before_it_is_applied(tmp_path: Path) -> None:
    catalog = due_tables(tmp_path)
    made = catalog.plan_maintenance("shop", ["compact"], rules=Round())
    later = of("tables: {shop.plain: {paused: move}}", known=lambda *_: NOTHING_KNOWN)
    report = catalog.maintain(made, rules=later)
    assert {line.table: line.outcome for line in report.lines} == {
        "shop.plain": "declined",
        "shop.parted": "done",
        "shop.log": "done",
    }
    assert catalog.table("shop.plain").latest_snapshot().id == 6
    again = catalog.maintain(made, rules=Round())
    assert {line.table: line.outcome for line in again.lines if line.table != "shop.plain"} == {
        "shop.parted": "already",
        "shop.log": "already",
    }
    assert catalog.table("shop.plain").latest_snapshot().id == 7
