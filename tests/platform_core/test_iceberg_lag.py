"""Full compactions for Iceberg readers: the policy's `iceberg_lag`, the decision with its reason, and its state."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dredge.checks.definition import limits_of
from dredge.platform_core.health import PartitionHealth, TableHealth
from dredge.platform_core.policies import DecisionOutcome, DecisionScope, Now, Policy, Reason, TableFacts, decide_all
from dredge.platform_core.policies.decisions import HOUR_MS, MINUTE_MS, Subject, due_work
from dredge.platform_core.policies.findings import find_iceberg_lag
from dredge.platform_core.policies.policy_files import read_policies
from dredge.platform_core.policies.table_state import TableState, judge_subject
from lsm_core.errors import InvalidOption
from lsm_core.iceberg.freshness import IcebergCondition, IcebergView
from lsm_core.maintenance.iceberg_lag import IcebergLag
from lsm_core.options import TableOptions
from tests.support.platform import bucket_health

NOW = 1_700_000_000_000
SINCE = NOW - 75 * MINUTE_MS


def _facts(**changes: Any) -> TableFacts:
    waiting = {"iceberg_since_ms": SINCE, "iceberg_rows": 40, "sorted_runs": 2, "newest_file_ms": NOW}
    bucket = bucket_health("", **{**waiting, **changes})
    return TableFacts("shop.t", TableHealth("shop.t", 1, 1, NOW, (bucket,)), TableOptions({}))


def _decide(policy: Policy, facts: TableFacts | None = None) -> Any:
    (decision,) = decide_all(facts or _facts(), DecisionScope.SORTED_RUNS, lambda _: policy, Now(NOW, NOW))
    return decision


def test_a_lag_above_the_limit_makes_a_full_compaction_due() -> None:
    decision = _decide(Policy(iceberg_lag_ms=HOUR_MS))
    assert (decision.outcome, decision.reason, decision.full) == (DecisionOutcome.RUN, Reason.ICEBERG_LAG, True)
    assert (decision.number, decision.threshold) == (75, 60)
    assert (
        "Iceberg readers miss 40 stored rows committed since 2023-11-14 20:58:20 UTC: 75 min > 60 min" in decision.text
    )
    assert decision.waited_ms == 15 * MINUTE_MS


@pytest.mark.parametrize(
    ("policy", "changes"),
    [
        (Policy(), {}),
        (Policy(iceberg_lag_ms=2 * HOUR_MS), {}),
        (Policy(iceberg_lag_ms=HOUR_MS), {"iceberg_since_ms": None, "iceberg_rows": 0}),
    ],
)
def test_without_a_limit_or_within_it_the_own_rules_decide(policy: Policy, changes: dict[str, Any]) -> None:
    decision = _decide(policy, _facts(**changes))
    assert (decision.outcome, decision.reason) == (DecisionOutcome.DECLINE, Reason.TOO_FEW_RUNS)


def test_the_trigger_alone_becomes_a_full_compaction() -> None:
    decision = _decide(Policy(iceberg_lag_ms=HOUR_MS), _facts(sorted_runs=9, cost_minor=5))
    assert (decision.reason, decision.full) == (Reason.ICEBERG_LAG, True)


def test_a_pause_holds_it_and_the_work_stays_due() -> None:
    paused = Policy(iceberg_lag_ms=HOUR_MS, paused="storage move")
    decision = _decide(paused)
    assert (decision.outcome, decision.reason) == (DecisionOutcome.DECLINE, Reason.PAUSED)
    assert "75 min > 60 min" in decision.text and "storage move" in decision.text
    due = due_work(_facts(), lambda _: paused, Now(NOW, NOW))
    assert due[""].since_ms == SINCE + HOUR_MS


def test_the_worst_bucket_decides_for_its_partition() -> None:
    buckets = (bucket_health("", 0), bucket_health("", 1, iceberg_since_ms=SINCE, iceberg_rows=3))
    state = PartitionHealth("", buckets)
    assert (state.iceberg_since_ms, state.iceberg_rows) == (SINCE, 3)
    assert PartitionHealth("", buckets[:1]).iceberg_since_ms is None


@pytest.mark.parametrize(
    ("condition", "hours", "policy", "text"),
    [
        (IcebergCondition.CURRENT, 1.9, Policy(iceberg_lag_ms=HOUR_MS), ""),
        (
            IcebergCondition.CURRENT,
            3,
            Policy(iceberg_lag_ms=HOUR_MS),
            "3 h > twice 1 h (built-in default): rows committed",
        ),
        (IcebergCondition.CURRENT, 300, Policy(), ""),
        (IcebergCondition.REPLACED, 0, Policy(), "taken back"),
        (IcebergCondition.UNREADABLE, 0, Policy(), "`dredge refresh-iceberg shop.t`"),
        (IcebergCondition.LEFT_OVER, 0, Policy(), "metadata.iceberg.storage is off"),
    ],
)
def test_readers_that_fail_or_lag_far_behind_are_an_alert(
    condition: IcebergCondition, hours: float, policy: Policy, text: str
) -> None:
    lag = IcebergLag("shop.t", IcebergView(condition, "/w/metadata", 5, 4), NOW - int(hours * HOUR_MS), 7, 700, 1)
    findings = find_iceberg_lag("shop.t", lag, policy, NOW)
    assert len(findings) == bool(text)
    assert all(
        text in item.line() and item.line().startswith("shop.t: warn (Iceberg readers lag): ") for item in findings
    )
    assert find_iceberg_lag("shop.t", None, policy, NOW) == []


def test_the_policy_file_sets_and_ends_the_limit(tmp_path: Path) -> None:
    file = tmp_path / "policies.yaml"
    file.write_text(
        "defaults: {iceberg_lag: 1 h}\ntables:\n  shop.t: {iceberg_lag: false}\n  shop.u: {iceberg_lag: 90 s}\n"
    )
    policies = read_policies(file)
    assert [policies.of(name).iceberg_lag_ms for name in ("shop.x", "shop.t", "shop.u")] == [HOUR_MS, None, 90_000]
    assert policies.of("shop.x").origin("iceberg_lag") == "policies.yaml:1, defaults"
    assert limits_of(policies.of("shop.u")).iceberg_lag_ms == 90_000
    assert limits_of(policies.of("shop.t")).iceberg_lag_ms == 24 * HOUR_MS
    file.write_text("defaults: {iceberg_lag: 30 s}\n")
    with pytest.raises(InvalidOption, match="shorter than 1 min"):
        read_policies(file)


def test_a_healthy_table_names_the_time_of_its_next_full_compaction() -> None:
    facts, policy, now = _facts(), Policy(iceberg_lag_ms=2 * HOUR_MS), Now(NOW, NOW)
    decision = _decide(policy)
    subject = Subject(facts, DecisionScope.SORTED_RUNS, "", facts.health.partitions[0])
    status = judge_subject(subject, decision, policy, now)
    assert status is not None
    assert status.state is TableState.HEALTHY
    assert status.action == "full compaction for Iceberg readers, who miss 40 stored rows"
    assert status.when_ms == SINCE + 2 * HOUR_MS
