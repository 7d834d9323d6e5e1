"""A round over many tables: what `maintain` is to plan, by the same decisions as sensors make, and whether a plan of it may still be applied.

Nothing here knows Dagster, so that the command line decides alike; what Dagster knows of checks and runs is asked through `Round.known`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from lsm_core.clock import SystemClock
from lsm_core.format.partition_path import partition_values
from lsm_core.maintenance import AssignItem, Declined, MaintenancePlan, plan_maintenance
from lsm_core.maintenance.combined import Opening, Request
from lsm_core.merge.order_free import order_free
from lsm_core.metadata.store import TableStore
from lsm_core.read.prune import expiry_of
from orchestration.health import PartitionHealth, TableHealth, refusal_of, table_health
from orchestration.policies.budgets import Budget
from orchestration.policies.decisions import (
    NOTHING_KNOWN,
    Asked,
    Decision,
    History,
    Now,
    Outcome,
    Reason,
    Subject,
    TableFacts,
    decide,
    decide_upkeep,
    settle_in_turn,
    subjects,
)
from orchestration.policies.partition_age import partition_age_ms
from orchestration.policies.policy import Policies, Policy

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
_TOLD: Final = 60
"""So many partitions of a table are named that something stands in the way of; the rest is counted."""


def facts_of(
    store: TableStore, health: TableHealth, refusal: str | None, sorted_ms: Mapping[str, int] | None = None
) -> TableFacts:
    """Return what decisions are made from, of a table that maintenance leaves alone for ``refusal`` (None: it does not).

    ``sorted_ms``: when its partitions were sorted, where a sort is a matter at all.
    """
    return TableFacts(
        store.name,
        health,
        store.options,
        append_only=not store.has_primary_key,
        partitioned=bool(store.schema.partition_keys),
        refusal=refusal,
        order=_order_sensitivity(store, has_deletes=any(one.deletes for one in health.buckets)),
        sorted_ms=sorted_ms,
        writers_compact=health.writers_compact,
    )


def _order_sensitivity(store: TableStore, *, has_deletes: bool) -> str:
    """Why compacting a part of the runs would change what the table says: where its option takes Java's units, not closed ones; "" where nothing would."""
    if not store.has_primary_key or store.options.order_sensitive != "as-paimon":
        return ""
    expires = expiry_of(store) is not None
    if store.options.needs_lookup and not expires:  # keys are looked up: a unit takes up what older runs say of them
        return ""
    found = order_free(store.schema, store.options.raw, has_deletes, store.name, expires)
    if found.ok:
        return ""
    return (
        f"merging a part of its runs could change answers ({found.reasons[0]}): set 'dredge.compaction.order-sensitive' = 'closed', "
        f"or `dredge compact {store.name} --full`"
    )


def policy_for(policy: Policy, store: TableStore, state: PartitionHealth | None) -> Policy:
    """Return what the table's ``policy`` says of one partition, by its age now; None: of the table."""
    if state is None or not policy.ages or not store.schema.partition_keys:
        return policy
    values, now = state.buckets[0].partition, store.clock.now_ms()
    return policy.at_age(partition_age_ms(values, store.options, state.newest_file_ms, now))


def due_action(level0_files: int, level0_pass: int, trigger: int, *, full: bool) -> tuple[str, dict[str, Any]]:
    """Return the action, and its arguments, that compacts what is due: of a bucket with more than ``level0_pass`` level-0 files one pass over the oldest ones."""
    if level0_files > level0_pass:
        return RECOVER, {"files": max(level0_pass, trigger)}
    return COMPACT, {"full": True} if full else {}


def values_of(store: TableStore, health: TableHealth, paths: Iterable[str]) -> list[Mapping[str, Any]]:
    """Return the values of the partitions of these paths, also of those all of whose rows wait for a bucket; what holds no file any more is left out."""
    wanted = list(paths)
    found: dict[str, Mapping[str, Any]] = {bucket.partition_text: bucket.partition for bucket in health.buckets}
    if any(path in health.waiting and path not in found for path in wanted):
        for item in plan_maintenance(store, "assign_buckets").items_of(AssignItem):
            found.setdefault(item.partition_text, partition_values(store.schema, item.partition))
    return [found[path] for path in wanted if path in found]


@dataclass(frozen=True)
class _Case:
    """A partition that is due."""

    store: TableStore
    subject: Subject
    policy: Policy
    now: Now


@dataclass(frozen=True)
class Round:
    """What a round may do (`lsm_core.maintenance.combined.Rules`).

    ``unattended``: nobody asked for it, so that hours, suspensions and ``budget`` hold as for sensors; by hand none of them does, and a pause, failed checks, runs at work,
    order and partitions about to expire do. ``known``: what is known of a table's partition ("": of any part of it) besides. ``approved``: somebody answers for the
    plans, or they are held for approval when they are applied; otherwise an action that needs approval is declined.
    """

    policies: Policies = field(default_factory=Policies)
    unattended: bool = False
    approved: bool = False
    budget: Budget = field(default_factory=Budget)
    known: Callable[[str, str], History] = lambda _table, _partition: NOTHING_KNOWN

    def requests(
        self, names: Iterable[str], open_table: Opening, actions: Sequence[str]
    ) -> tuple[list[Request], list[Declined]]:
        """Return what to plan, compactions in their turn (most useful first), and a line for everything else.

        Of a compaction are planned the partitions that the tables' own rules ask for. A table that cannot be opened is declined as "failed".
        """
        asked: list[Request] = []
        declined: list[Declined] = []
        due: dict[str, tuple[Decision, _Case]] = {}
        for name in names:
            for action in actions:
                try:
                    store = open_table(name)
                    if action == COMPACT:
                        cases = self._cases(store)
                        due |= {one.subject: (one, case) for one, case in cases if one.outcome is Outcome.RUN}
                        declined += _told(store.name, [one for one, _ in cases if one.outcome is not Outcome.RUN])
                        continue
                    why = self.upkeep(store, action)
                except Exception as error:  # noqa: BLE001  (one table stops no other)
                    text = f"{action}: {type(error).__name__}: {error}"
                    declined.append(Declined(name, "failed", text, {"action": action}))
                    continue
                if why is not None:
                    declined.append(_line(why, action))
                else:
                    arguments = self.policies.of(store.name).retention_arguments(action, store.clock.now_ms())
                    asked.append(Request(store.name, action, arguments))
        final = settle_in_turn(
            (one for one, _ in due.values()), self.budget, lambda one, left: self._settled(due[one.subject][1], left)
        )
        held = [one for one in final if one.outcome is not Outcome.RUN]
        for table in dict.fromkeys(one.table for one in held):
            declined += _told(table, [one for one in held if one.table == table])
        chosen = [(one, due[one.subject][1]) for one in final if one.outcome is Outcome.RUN]
        return [*_requests(chosen, declined), *asked], declined

    def why_not(self, store: TableStore, plan: MaintenancePlan) -> Declined | None:
        """Return why a plan of this round is not to be applied now, None when it may be: it is decided once more, as things are by now."""
        if plan.action not in {COMPACT, RECOVER}:
            why = self.upkeep(store, plan.action)
            return None if why is None else _line(why, plan.action)
        paths = {str(getattr(item, "partition_text", "")) for item in plan.items}
        for one, case in self._cases(store):
            if one.partition in paths or not one.partition:
                final = self._settled(case, Budget()) if one.outcome is Outcome.RUN else one
                if final.outcome is not Outcome.RUN:
                    return _line(final, plan.action)
        return None

    def upkeep(self, store: TableStore, action: str) -> Decision | None:
        """Return why an action that compacts no data may not be done to a table now, None when it may."""
        policy = self._hours(self.policies.of(store.name))
        unapproved = self._unapproved(store.name, policy, action)
        if unapproved is not None:
            return unapproved
        known = self.known(store.name, "")
        return decide_upkeep(store.name, action, refusal_of(store), policy, known, store.clock.now_ms())

    def _cases(self, store: TableStore) -> list[tuple[Decision, _Case]]:
        """What metadata alone say of each partition's compaction."""
        table, now = (
            facts_of(store, table_health(store), refusal_of(store)),
            Now(store.clock.now_ms(), SystemClock().now_ms()),
        )
        if not self.unattended:  # somebody asked for it now
            table = replace(table, writers_compact=False)
        found = []
        for subject in subjects(table, Asked.OWN_RULES):
            policy = self._hours(policy_for(self.policies.of(store.name), store, subject.state))
            one = decide(subject, policy, NOTHING_KNOWN, now)
            if one.outcome is Outcome.RUN:
                one = self._unapproved(store.name, policy, COMPACT) or one
            found.append((one, _Case(store, subject, policy, now)))
        return found

    def _settled(self, case: _Case, budget: Budget) -> Decision:
        known = replace(self.known(case.store.name, case.subject.partition), budget=budget)
        return decide(case.subject, case.policy, known if self.unattended else replace(known, suspended=None), case.now)

    def _hours(self, policy: Policy) -> Policy:
        return policy if self.unattended else replace(policy, off_peak=None)

    def _unapproved(self, table: str, policy: Policy, action: str) -> Decision | None:
        if self.approved or not policy.needs_approval(action):
            return None
        origin = policy.origin(f"approval.{policy.approved_as(action)}")
        text = f"approval of {action} is required ({origin}): say who approves it with --approved-by"
        return Decision(table, "", Outcome.DECLINE, Reason.APPROVAL, text)


def _requests(chosen: Sequence[tuple[Decision, _Case]], declined: list[Declined]) -> list[Request]:
    """The compactions of what was ``chosen``, in that order: one of a table's partitions that its rules pick from, one of those that are merged whole, passes each by itself."""
    groups: dict[tuple[str, str, bool, str], list[tuple[int, Decision, _Case]]] = {}
    for turn, (one, case) in enumerate(chosen):
        level0 = 0 if case.subject.state is None else case.subject.state.level0_files
        action, _ = due_action(level0, case.policy.level0_pass, 0, full=one.full)
        place = (one.table, action, one.full, one.partition if action == RECOVER else "")
        groups.setdefault(place, []).append((turn, one, case))
    found = []
    for (table, action, full, _), group in groups.items():
        turn, _, case = group[0]
        facts, trigger = case.subject.table, case.store.options.compaction_trigger
        level0 = case.policy.level0_pass + 1 if action == RECOVER else 0
        arguments = due_action(level0, case.policy.level0_pass, trigger, full=full)[1]
        if facts.partitioned:
            try:
                arguments["partitions"] = values_of(case.store, facts.health, (one.partition for _, one, _ in group))
            except Exception as error:  # noqa: BLE001  (one table stops no other)
                text = f"{COMPACT}: {type(error).__name__}: {error}"
                declined.append(Declined(table, "failed", text, {"action": COMPACT}))
                continue
        score = max(one.benefit for _, one, _ in group)
        found.append(Request(table, action, arguments, turn, score))
    return found


def _told(table: str, declined: Sequence[Decision]) -> list[Declined]:
    """Lines of what is not compacted: each partition that something stands in the way of, and one where nothing is due in the whole table."""
    standing = [one for one in declined if one.reason not in _NOTHING_DUE]
    lines = [_line(one, COMPACT) for one in standing[:_TOLD]]
    if len(standing) > _TOLD:
        text = f"{COMPACT}: {len(standing) - _TOLD:,} more partitions are left alone"
        lines.append(Declined(table, "more", text, {"action": COMPACT}))
    if not standing and declined:
        more = f" (and {len(declined) - 1:,} more partitions)" if len(declined) > 1 else ""
        lines.append(Declined(table, "nothing", f"{COMPACT}: {declined[0].text}{more}", {"action": COMPACT}))
    return lines


def _line(one: Decision, action: str) -> Declined:
    return Declined(one.subject, one.reason.value, f"{action}: {one.text}", {"action": action})


__all__ = ["COMPACT", "RECOVER", "Round", "due_action", "facts_of", "policy_for", "values_of"]
