"""Round of maintenance over many tables: the plans that `maintain` makes, by the same decisions as the sensors.

The module does not import Dagster, so that the command line can use it, too. `Round.known` supplies the facts that only
Dagster has, such as failed checks and running runs.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from dredge.platform_core.health import PartitionHealth, TableHealth, refusal_of, table_health
from dredge.platform_core.policies.budgets import Budget
from dredge.platform_core.policies.decisions import (
    NOTHING_KNOWN,
    Decision,
    DecisionOutcome,
    DecisionScope,
    History,
    Now,
    Reason,
    Subject,
    TableFacts,
    decide,
    decide_in_order,
    decide_upkeep,
    sort_rule,
    subjects,
)
from dredge.platform_core.policies.partition_age import partition_age_ms
from dredge.platform_core.policies.permanent_failures import PermanentFailure, find_forbidding, find_read
from dredge.platform_core.policies.policy import Policies, Policy, Prices
from dredge.platform_core.policies.table_state import TableStatus, combine, judge_metadata
from lsm_core.clock import SystemClock
from lsm_core.format.partitions import partition_values
from lsm_core.maintenance import AssignItem, Declined, MaintenancePlan, plan_maintenance
from lsm_core.maintenance.actions.compact.planning import Calibration, calibration_of
from lsm_core.maintenance.actions.compact.sort_order import read_sort_times
from lsm_core.maintenance.combined import Opening, Request
from lsm_core.merge.order_free import order_free
from lsm_core.metadata.store import TableStore
from lsm_core.read.prune import expiry_of

COMPACT: Final = "compact"
RECOVER: Final = "recover"
_NOTHING_DUE: Final = frozenset(
    {
        Reason.TOO_FEW_RUNS,
        Reason.TOO_FEW_FILES,
        Reason.ONE_RUN,
        Reason.NOT_IDLE,
        Reason.EMPTY,
        Reason.NOTHING_PICKED,
        Reason.WATCHING,
    }
)
_MOST_LINES: Final = 60
"""Most declined partitions that are listed per table; further declined partitions are only counted."""


def facts_of(
    store: TableStore,
    health: TableHealth,
    refusal: str | None,
    sorted_ms: Mapping[str, int] | None = None,
    prices: Prices | None = None,
) -> TableFacts:
    """Return the facts of a table for decisions.

    Args:
        store: the table.
        health: health of the table.
        refusal: why maintenance does not touch the table's files, or None.
        sorted_ms: epoch ms of the last sort compaction by partition, or None if nothing sorts the table.
        prices: prices of the table's policy, or None. If the prices can decline compactions, forecasts are corrected by
            the table's earlier compactions in the ledger (record of maintenance runs).
    """
    is_weighed = prices is not None and prices.weighs_rewrites
    return TableFacts(
        store.name,
        health,
        store.options,
        append_only=not store.has_primary_key,
        partitioned=bool(store.schema.partition_keys),
        refusal=refusal,
        order=_explain_order(store, has_deletes=any(bucket.deletes for bucket in health.buckets)),
        sorted_ms=sorted_ms,
        writers_compact=health.writers_compact,
        calibration=calibration_of(store) if is_weighed else Calibration(),
    )


def _explain_order(store: TableStore, *, has_deletes: bool) -> str:
    """Return why compacting only some of the sorted runs would change query results, or "" if results stay the same.

    Only tables with ``dredge.compaction.order-sensitive = as-paimon``, which picks runs as Java Paimon, are affected.

    Args:
        store: the table.
        has_deletes: whether the files have delete rows.
    """
    if not store.has_primary_key or store.options.order_sensitive != "as-paimon":
        return ""
    has_expiry = expiry_of(store) is not None
    if store.options.needs_lookup and not has_expiry:  # a unit looks up the older values of its keys
        return ""
    freedom = order_free(store.schema, store.options.raw, has_deletes, store.name, has_expiry)
    if freedom.ok:
        return ""
    return (
        f"merging a part of its runs could change answers ({freedom.reasons[0]}): "
        f"set 'dredge.compaction.order-sensitive' = 'closed', or run `dredge compact {shlex.quote(store.name)} --full`"
    )


def policy_for(policy: Policy, store: TableStore, state: PartitionHealth | None) -> Policy:
    """Return the policy of a partition at its current age, or of the whole table if `state` is None.

    Args:
        policy: policy of the table.
        store: the table.
        state: health of the partition, or None for the whole table.
    """
    if state is None or not policy.ages or not store.schema.partition_keys:
        return policy
    values, now = state.buckets[0].partition, store.clock.now_ms()
    return policy.at_age(partition_age_ms(values, store.options, state.newest_file_ms, now))


def judge_table(store: TableStore, health: TableHealth, policy: Policy) -> TableStatus:
    """Return the status of a table, or of some of its partitions, from metadata alone.

    Args:
        store: the table.
        health: health of the table or partitions.
        policy: policy of the table.
    """
    facts = facts_of(store, health, refusal_of(store))
    if sort_rule(facts, policy) is not None:
        facts = replace(facts, sorted_ms=read_sort_times(store))
    now = Now(store.clock.now_ms(), SystemClock().now_ms())
    return combine(store.name, judge_metadata(facts, lambda state: policy_for(policy, store, state), now))


def due_action(level0_files: int, level0_pass: int, trigger: int, *, full: bool) -> tuple[str, dict[str, Any]]:
    """Return the name of the action that compacts due work (compact or recover), and the action's arguments.

    A bucket with more than `level0_pass` level-0 files gets one pass of recover over the oldest of these files.

    Args:
        level0_files: number of level-0 files of the bucket.
        level0_pass: most files of one pass.
        trigger: number of sorted runs that triggers a compaction of the table; a pass merges at least as many files.
        full: whether a full compaction is due.
    """
    if level0_files > level0_pass:
        return RECOVER, {"files": max(level0_pass, trigger)}
    return COMPACT, {"full": True} if full else {}


def values_of(store: TableStore, health: TableHealth, paths: Iterable[str]) -> list[Mapping[str, Any]]:
    """Return the partition values of partition paths, also of partitions whose rows all wait for a bucket.

    Args:
        store: the table.
        health: health of the table.
        paths: paths of partitions.

    Returns:
        Partition values by column, one mapping per path. Paths of partitions with neither files nor waiting rows are
        left out.
    """
    selected = list(paths)
    values: dict[str, Mapping[str, Any]] = {bucket.partition_text: bucket.partition for bucket in health.buckets}
    if any(path in health.waiting and path not in values for path in selected):
        for item in plan_maintenance(store, "assign_buckets").items_of(AssignItem):
            values.setdefault(item.partition_text, partition_values(store.schema, item.partition))
    return [values[path] for path in selected if path in values]


@dataclass(frozen=True)
class _DuePartition:
    """Partition, or whole table, that one round of maintenance decides about.

    Attributes:
        store: the table.
        subject: the partition or the whole table.
        policy: policy that applies to the partition.
        now: time of the decision.
    """

    store: TableStore
    subject: Subject
    policy: Policy
    now: Now


@dataclass(frozen=True)
class Round:
    """Rules of one round of maintenance over many tables (`lsm_core.maintenance.combined.Rules`).

    Attributes:
        policies: policies in force.
        unattended: whether no person started the round. Only then do off-peak hours, prices and suspensions apply, and
            tables are left to writers that compact. Pauses, failed checks, running runs, order sensitivity, expiring
            partitions and `budget` apply to every round.
        approved: whether a person approves the plans, or the plans are stored for approval. Otherwise actions that
            need approval are declined.
        budget: remaining budget; callers pass one only for unattended rounds.
        known: returns the history of a table (first argument) and partition path (second argument; "" for any
            partition).
        failures: returns the failures of a table that no retry heals and that still hold. In unattended rounds they
            forbid the plan that failed, and plans that read a damaged file.
    """

    policies: Policies = field(default_factory=Policies)
    unattended: bool = False
    approved: bool = False
    budget: Budget = field(default_factory=Budget)
    known: Callable[[str, str], History] = lambda _table, _partition: NOTHING_KNOWN
    failures: Callable[[TableStore], Sequence[PermanentFailure]] = lambda _store: ()

    def requests(
        self, names: Iterable[str], open_table: Opening, actions: Sequence[str]
    ) -> tuple[list[Request], list[Declined]]:
        """Return the plans to make in this round, and why tables, partitions and actions are left out.

        Compactions come in order of usefulness, for the partitions that the tables' own rules pick. A table that
        cannot be opened is left out with the reason "failed".

        Args:
            names: names of the tables.
            open_table: opens a table by name.
            actions: names of the actions of the round.

        Returns:
            One request per plan to make, and one entry per table, partition or action that is left out.
        """
        upkeep: list[Request] = []
        declined: list[Declined] = []
        due: dict[str, tuple[Decision, _DuePartition]] = {}
        for name in names:
            for action in actions:
                try:
                    store = open_table(name)
                    if action == COMPACT:
                        cases = self._decide_partitions(store)
                        due |= {
                            decision.subject: (decision, case)
                            for decision, case in cases
                            if decision.outcome is DecisionOutcome.RUN
                        }
                        declined += _list_declined(
                            store.name,
                            [decision for decision, _ in cases if decision.outcome is not DecisionOutcome.RUN],
                        )
                        continue
                    why = self.upkeep(store, action)
                except Exception as error:  # noqa: BLE001  (one table stops no other)
                    text = f"{action}: {type(error).__name__}: {error}"
                    declined.append(Declined(name, "failed", text, {"action": action}))
                    continue
                if why is not None:
                    declined.append(_as_declined(why, action))
                else:
                    arguments = self.policies.of(store.name).retention_arguments(action, store.clock.now_ms())
                    upkeep.append(Request(store.name, action, arguments))
        final = decide_in_order(
            (decision for decision, _ in due.values()),
            self.budget,
            lambda decision, remaining: self._settle(due[decision.subject][1], remaining),
        )
        held = [decision for decision in final if decision.outcome is not DecisionOutcome.RUN]
        for table in dict.fromkeys(decision.table for decision in held):
            declined += _list_declined(table, [decision for decision in held if decision.table == table])
        chosen = [(decision, due[decision.subject][1]) for decision in final if decision.outcome is DecisionOutcome.RUN]
        return [*_make_requests(chosen, declined, self._failures), *upkeep], declined

    def forbids(self, store: TableStore, plan: MaintenancePlan) -> Declined | None:
        """Return the earlier failure that forbids a plan in a round that no person started, or None.

        Args:
            store: the table.
            plan: the plan.
        """
        failures = self._failures(store)
        reads = find_read(plan, failures)
        for partition in sorted({str(getattr(item, "partition_text", "")) for item in plan.items}):
            failure = find_forbidding(failures, plan.hash, partition, reads)
            if failure is not None:
                reason = Reason.CORRUPT if failure.is_corrupt else Reason.NO_RETRY
                subject = f"{store.name}/{partition}" if partition else store.name
                return Declined(
                    subject, reason.value, f"{plan.action}: {failure.text()}", {"action": plan.action}, partition
                )
        return None

    def _failures(self, store: TableStore) -> Sequence[PermanentFailure]:
        return self.failures(store) if self.unattended else ()

    def why_not(self, store: TableStore, plan: MaintenancePlan) -> Declined | None:
        """Return why a plan of this maintenance round must not be applied now, or None.

        The decision is made again from the current state of the table, without a budget.
        """
        forbidden = self.forbids(store, plan)
        if forbidden is not None:
            return forbidden
        if plan.action not in {COMPACT, RECOVER}:
            why = self.upkeep(store, plan.action)
            return None if why is None else _as_declined(why, plan.action)
        paths = {str(getattr(item, "partition_text", "")) for item in plan.items}
        for decision, case in self._decide_partitions(store):
            if decision.partition in paths or not decision.partition:
                final = self._settle(case, Budget()) if decision.outcome is DecisionOutcome.RUN else decision
                if final.outcome is not DecisionOutcome.RUN:
                    return _as_declined(final, plan.action)
        return None

    def upkeep(self, store: TableStore, action: str) -> Decision | None:
        """Return why an action that compacts no data (such as an expiry) may not run now, or None if it may.

        Args:
            store: the table.
            action: name of the action.
        """
        policy = self._with_hours(self.policies.of(store.name))
        unapproved = self._decline_unapproved(store.name, policy, action)
        if unapproved is not None:
            return unapproved
        known = self.known(store.name, "")
        return decide_upkeep(store.name, action, refusal_of(store), policy, known, store.clock.now_ms())

    def _decide_partitions(self, store: TableStore) -> list[tuple[Decision, _DuePartition]]:
        """Return pairs of decision and partition (or whole table), from metadata alone."""
        table, now = (
            facts_of(store, table_health(store), refusal_of(store), prices=self.policies.of(store.name).cost),
            Now(store.clock.now_ms(), SystemClock().now_ms()),
        )
        if not self.unattended:  # a person wants it compacted now
            table = replace(table, writers_compact=False)
        cases = []
        for subject in subjects(table, DecisionScope.OWN_RULES):
            policy = self._with_hours(policy_for(self.policies.of(store.name), store, subject.state))
            decision = decide(subject, policy, NOTHING_KNOWN, now)
            if decision.outcome is DecisionOutcome.RUN:
                decision = self._decline_unapproved(store.name, policy, COMPACT) or decision
            cases.append((decision, _DuePartition(store, subject, policy, now)))
        return cases

    def _settle(self, case: _DuePartition, budget: Budget) -> Decision:
        known = replace(self.known(case.store.name, case.subject.partition), budget=budget)
        return decide(case.subject, case.policy, known if self.unattended else replace(known, suspended=None), case.now)

    def _with_hours(self, policy: Policy) -> Policy:
        return policy if self.unattended else replace(policy, off_peak=None, cost=Prices())

    def _decline_unapproved(self, table: str, policy: Policy, action: str) -> Decision | None:
        if self.approved or not policy.needs_approval(action):
            return None
        origin = policy.origin(f"approval.{policy.approved_as(action)}")
        text = f"approval of {action} is required ({origin}): say who approves it with --approved-by"
        return Decision(table, "", DecisionOutcome.DECLINE, Reason.APPROVAL, text)


def _make_requests(
    chosen: Sequence[tuple[Decision, _DuePartition]],
    declined: list[Declined],
    failures: Callable[[TableStore], Sequence[PermanentFailure]],
) -> list[Request]:
    """Return the requests for plans of the chosen compactions, in the order of `chosen`.

    A table gets at most one request for partial compactions and one for full compactions, each over several partitions.
    Each pass over the level 0 of a partition is a separate request. So is each partition of a table with failures, as a
    failure may forbid the plan of one partition. Errors are added to `declined`.

    Args:
        chosen: decisions to compact, each with its partition.
        declined: list of what the round leaves out, with the reasons; more entries are appended.
        failures: returns the failures of a table that no retry heals.
    """
    groups: dict[tuple[str, str, bool, str], list[tuple[int, Decision, _DuePartition]]] = {}
    for turn, (decision, case) in enumerate(chosen):
        level0 = 0 if case.subject.state is None else case.subject.state.level0_files
        action, _ = due_action(level0, case.policy.level0_pass, 0, full=decision.full)
        alone = action == RECOVER or bool(failures(case.store))
        place = (decision.table, action, decision.full, decision.partition if alone else "")
        groups.setdefault(place, []).append((turn, decision, case))
    requests = []
    for (table, action, full, _), group in groups.items():
        turn, _, case = group[0]
        facts, trigger = case.subject.table, case.store.options.compaction_trigger
        level0 = case.policy.level0_pass + 1 if action == RECOVER else 0
        arguments = due_action(level0, case.policy.level0_pass, trigger, full=full)[1]
        if facts.partitioned:
            try:
                arguments["partitions"] = values_of(
                    case.store, facts.health, (decision.partition for _, decision, _ in group)
                )
            except Exception as error:  # noqa: BLE001  (one table stops no other)
                text = f"{COMPACT}: {type(error).__name__}: {error}"
                declined.append(Declined(table, "failed", text, {"action": COMPACT}))
                continue
        score = max(decision.benefit for _, decision, _ in group)
        requests.append(Request(table, action, arguments, turn, score))
    return requests


def _list_declined(table: str, declined: Sequence[Decision]) -> list[Declined]:
    """Return why a round does no work on partitions of a table.

    The result has an entry for each of the first 60 partitions whose work is due but not done, or one entry if no work
    is due.

    Args:
        table: full name of the table.
        declined: decisions about the table to start no run.
    """
    blocked = [decision for decision in declined if decision.reason not in _NOTHING_DUE]
    lines = [_as_declined(decision, COMPACT) for decision in blocked[:_MOST_LINES]]
    if len(blocked) > _MOST_LINES:
        text = f"{COMPACT}: {len(blocked) - _MOST_LINES:,} more partitions are left alone"
        lines.append(Declined(table, "more", text, {"action": COMPACT}))
    if not blocked and declined:
        more = f" (and {len(declined) - 1:,} more partitions)" if len(declined) > 1 else ""
        lines.append(Declined(table, "nothing", f"{COMPACT}: {declined[0].text}{more}", {"action": COMPACT}))
    return lines


def _as_declined(decision: Decision, action: str) -> Declined:
    return Declined(decision.subject, decision.reason.value, f"{action}: {decision.text}", {"action": action})
