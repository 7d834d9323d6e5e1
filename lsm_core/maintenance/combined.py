"""Maintenance of many tables as one plan: ranked, limited, one commit per table, and resumable.

The plan of each table is saved in that table's folder under the plan's hash; the combined plan lists the hashes in
order. Progress is not recorded separately: each table shows whether its plan was applied (`ledger.applied_before`). So
a combined plan can be applied any number of times, also after a crash.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any, Final, Protocol

from lsm_core.errors import CorruptFile, InvalidOption, PlanStale
from lsm_core.json_text import parse_json, time_of
from lsm_core.maintenance.action import (
    CODE_VERSION,
    Declined,
    MaintenancePlan,
    Runner,
    find_action,
    plan_maintenance,
    size_text,
)
from lsm_core.maintenance.apply import apply_plan
from lsm_core.maintenance.ledger import applied_before
from lsm_core.maintenance.observe import health
from lsm_core.maintenance.saved_plans import load_plan, save_plan
from lsm_core.maintenance.table_ranking import score_of
from lsm_core.metadata.store import TableStore
from lsm_core.progress import reached, stage

_VERSION: Final = 1
UNREADABLE: Final = "unreadable"
"""Reason of declined items for which a part of the table's history cannot be read."""
ROUTINE: Final = ("compact", "expire_snapshots", "trash")
"""Default actions for a table, in this order."""
MODES: Final = ("divided", "combined")
"""Ways to process many tables: one after another by name ("divided"), or those in most need first ("combined")."""
Opening = Callable[[str], TableStore]
"""Function that opens a table by its name; its errors pass through."""


@dataclass(frozen=True)
class Limits:
    """Limits of one combined plan; a limit of None is not applied.

    Attributes:
        max_bytes: largest number of bytes that compactions read.
        max_tables: largest number of tables.
        max_seconds: largest number of seconds: of the forecast at planning, of elapsed time when applied.
    """

    max_bytes: int | None = None
    max_tables: int | None = None
    max_seconds: float | None = None


@dataclass(frozen=True)
class Request:
    """Action to plan for a table.

    Attributes:
        table: name of the table.
        action: name of the action.
        arguments: arguments of the action.
        turn: position in the combined plan, smallest first. None: after all requests with a position, ordered by score.
        score: need for the action (0 to 100). None: the score of the table's buckets for a compaction, else 0.
    """

    table: str
    action: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    turn: int | None = None
    score: float | None = None


class Rules(Protocol):
    """Rules that apply in addition to the tables' options, for example a platform's policies."""

    def requests(
        self, names: Iterable[str], open_table: Opening, actions: Sequence[str]
    ) -> tuple[Sequence[Request], Sequence[Declined]]:
        """Return the requests for the tables, and the skipped tables and actions, each with the reason.

        Args:
            names: names of the tables.
            open_table: function that opens a table by name.
            actions: names of the actions to request.
        """
        ...

    def forbids(self, store: TableStore, plan: MaintenancePlan) -> Declined | None:
        """Return the reason why a new plan must not become part of the combined plan, or None if it may.

        Args:
            store: the table.
            plan: new plan of the table, with at least one item.
        """
        ...

    def why_not(self, store: TableStore, plan: MaintenancePlan) -> Declined | None:
        """Return the reason why a plan must not be applied now, or None if it may be applied.

        Args:
            store: the table.
            plan: plan to apply.
        """
        ...


@dataclass(frozen=True)
class CombinedItem:
    """Plan of one table in a combined plan. Bytes are file sizes; seconds are those on one core.

    Attributes:
        table: name of the table.
        action: name of the action.
        plan_hash: hash of the table's plan.
        base_snapshot: newest snapshot at planning.
        score: need for the action (0 to 100), by default the score of the table's buckets for a compaction, else 0.
        bytes_in: bytes that applying the plan reads.
        bytes_freed: bytes that applying the plan frees.
        tasks: number of tasks.
        seconds: forecast time of applying the plan.
        reason: reason of the first item of the table's plan.
    """

    table: str
    action: str
    plan_hash: str
    base_snapshot: int | None
    score: float = 0.0
    bytes_in: int = 0
    bytes_freed: int = 0
    tasks: int = 0
    seconds: float = 0.0
    reason: str = ""


@dataclass(frozen=True)
class CombinedPlan:
    """Plans of many tables in the order of their application.

    Attributes:
        pattern: pattern of table names, as requested.
        actions: names of the actions, as requested.
        items: the plans.
        declined: every skipped table or action with the reason.
        limits: limits within which the items were selected.
        created_ms: time of planning (epoch ms).
        code_version: version of the planning code.
    """

    pattern: str
    actions: tuple[str, ...]
    items: tuple[CombinedItem, ...] = ()
    declined: tuple[Declined, ...] = ()
    limits: Limits = field(default_factory=Limits)
    created_ms: int = 0
    code_version: str = CODE_VERSION

    @property
    def tables(self) -> tuple[str, ...]:
        """Names of the tables of all items, each once, in order."""
        return tuple(dict.fromkeys(item.table for item in self.items))

    @cached_property
    def hash(self) -> str:
        """Hex digest over all fields except the time of planning."""
        covered = self._object()
        del covered["created_ms"]
        return hashlib.sha256(json.dumps(covered, sort_keys=True, separators=(",", ":")).encode()).hexdigest()[:32]

    def to_json(self) -> str:
        """Return the whole plan with its hash as indented JSON."""
        return json.dumps({"version": _VERSION, "hash": self.hash, **self._object()}, indent=2, ensure_ascii=False)

    def _object(self) -> dict[str, Any]:
        return {**asdict(self), "actions": list(self.actions)}

    @staticmethod
    def from_json(text: str) -> CombinedPlan:
        """Return the combined plan in the JSON text of :meth:`to_json`.

        Args:
            text: JSON of a combined plan.

        Raises:
            CorruptFile: the text is not a combined plan.
            PlanStale: the plan was changed, or made by a different code version.
        """
        try:
            value = parse_json(text, unique=True)
            if value["version"] != _VERSION or value["code_version"] != CODE_VERSION:
                raise PlanStale(f"it was made by {value['code_version']}, this is {CODE_VERSION}; plan it again")
            plan = CombinedPlan(
                pattern=str(value["pattern"]),
                actions=tuple(value["actions"]),
                items=tuple(CombinedItem(**item) for item in value["items"]),
                declined=tuple(Declined(**item) for item in value["declined"]),
                limits=Limits(**value["limits"]),
                created_ms=time_of(value["created_ms"]),
                code_version=value["code_version"],
            )
            expected = value["hash"]
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise CorruptFile("<combined plan>", f"unreadable: {error!r}") from error
        if plan.hash != expected:
            raise PlanStale(f"its content was changed after planning (hash {expected} became {plan.hash})")
        return plan


@dataclass(frozen=True)
class CombinedLine:
    """Result of applying one item of a combined plan.

    Attributes:
        table: name of the table.
        action: name of the action.
        outcome: "done", "already" (applied before), "nothing", "stale", "failed", "later" (beyond a limit) or
            "declined" (the rules forbid the item now).
        text: description of the result for people.
        snapshot_id: published snapshot, None if no snapshot was published.
        run_id: id of the ledger entry, "" if there is no entry.
        seconds: wall-clock time.
    """

    table: str
    action: str
    outcome: str
    text: str
    snapshot_id: int | None = None
    run_id: str = ""
    seconds: float = 0.0


@dataclass(frozen=True)
class CombinedReport:
    """Results of applying a combined plan.

    Attributes:
        plan_hash: hash of the plan, "" if the tables were planned one after another.
        lines: one line per item.
        seconds: wall-clock time of all items.
    """

    plan_hash: str
    lines: tuple[CombinedLine, ...] = ()
    seconds: float = 0.0

    @property
    def failed(self) -> tuple[CombinedLine, ...]:
        """Lines of items that raised an error; applying the plan again tries these items again."""
        return tuple(line for line in self.lines if line.outcome == "failed")

    @property
    def left(self) -> tuple[CombinedLine, ...]:
        """Lines of items that were not applied and wait for the plan to be applied again."""
        return tuple(line for line in self.lines if line.outcome in {"failed", "later"})

    def to_object(self) -> dict[str, Any]:
        """Return the report as plain values."""
        return asdict(self)


def plan_combined(
    names: Iterable[str],
    open_table: Opening,
    pattern: str,
    actions: Sequence[str] = ROUTINE,
    limits: Limits | None = None,
    *,
    created_ms: int = 0,
    save: bool = True,
    rules: Rules | None = None,
) -> CombinedPlan:
    """Plan actions for all tables, worst first, within limits.

    Requests to which the rules give a position (`Request.turn`) come first, in that order. The further requests follow
    by score, then by bytes freed, then by bytes read; without a given score, only compactions have a score above 0. A
    table that cannot be opened or planned is added to ``declined``. Memory holds the plan of one table, and one item
    per table.

    Args:
        names: names of the tables.
        open_table: function that opens a table by name.
        pattern: pattern of the names; recorded in the plan only.
        actions: names of the actions.
        limits: limits of the plan, None for no limits.
        created_ms: time of planning (epoch ms).
        save: save each table's plan in the table's folder, which `apply_combined` requires.
        rules: rules that select and order the requests, None to plan every action by the tables' options.

    Raises:
        InvalidOption: an action is unknown or requires arguments.
    """
    bounds = limits or Limits()
    chosen = list(dict.fromkeys(actions))
    for action in chosen:
        needed = [argument.name for argument in find_action(action).arguments if argument.required]
        if needed:
            raise InvalidOption("actions", action, f"actions that need no argument; this one needs {', '.join(needed)}")
    requests: Iterable[Request] = (Request(name, action) for name in names for action in chosen)
    declined: list[Declined] = []
    if rules is not None:
        requests, left = rules.requests(names, open_table, chosen)
        declined += left
    ranked_items: list[tuple[CombinedItem, Request]] = []
    for request in requests:
        item = _plan_table(request, open_table, declined, rules, save=False)
        ranked_items += [] if item is None else [(item, request)]
    order = sorted(ranked_items, key=lambda pair: _rank(*pair))
    within, beyond = _select_within_limits([item for item, _ in order], bounds)
    if save:
        requests_by_item = {id(item): request for item, request in order}
        kept = (_plan_table(requests_by_item[id(item)], open_table, declined, rules, save=True) for item in within)
        within = [item for item in kept if item is not None]
    return CombinedPlan(pattern, tuple(chosen), tuple(within), (*declined, *beyond), bounds, created_ms)


def _plan_table(
    request: Request, open_table: Opening, declined: list[Declined], rules: Rules | None, *, save: bool
) -> CombinedItem | None:
    """Plan one request, and save the plan in the table's folder if ``save`` is set.

    Returns:
        The item of the plan; None, with the reason added to ``declined``, if nothing is to be done, planning fails or
        the rules forbid the plan.
    """
    action = request.action
    try:
        store = open_table(request.table)
        plan = plan_maintenance(store, action, **request.arguments)
        unreadable = [] if save else [_carry_over(request, item) for item in plan.declined if item.reason == UNREADABLE]
        declined += unreadable
        if not plan.items:
            if not save and not unreadable:
                declined.append(Declined(request.table, "nothing", f"{action}: nothing to do", {"action": action}))
            return None
        forbidden = None if rules is None else rules.forbids(store, plan)
        if forbidden is not None:
            declined += [] if save else [forbidden]
            return None
        score = request.score
        if score is None:
            score, _ = score_of(health(store) if action == "compact" else [])
        if save:
            save_plan(store, plan)
    except Exception as error:  # noqa: BLE001  (one table stops no other)
        text = f"{action}: {type(error).__name__}: {error}"
        declined.append(Declined(request.table, "failed", text, {"action": action}))
        return None
    cost = plan.estimate
    return CombinedItem(
        table=store.name,
        action=action,
        plan_hash=plan.hash,
        base_snapshot=plan.base_snapshot,
        score=score,
        bytes_in=cost.bytes_in,
        bytes_freed=cost.bytes_freed,
        tasks=cost.tasks,
        seconds=cost.seconds,
        reason=next((str(text) for item in plan.items if (text := getattr(item, "reason", ""))), ""),
    )


def _carry_over(request: Request, declined: Declined) -> Declined:
    """Return what a table's plan skipped, with its reason, as an entry of `CombinedPlan.declined` for this table."""
    facts = {**declined.facts, "action": request.action}
    return Declined(request.table, declined.reason, f"{request.action}: {declined.text}", facts)


def _rank(item: CombinedItem, request: Request) -> tuple[Any, ...]:
    turn = (0, request.turn) if request.turn is not None else (1, 0)
    return (*turn, -item.score, -item.bytes_freed, -item.bytes_in, item.table, item.action)


def _select_within_limits(ranked: Sequence[CombinedItem], limits: Limits) -> tuple[list[CombinedItem], list[Declined]]:
    """Return (items within the limits, in order; declined items); later items may fit after a large declined item."""
    within: list[CombinedItem] = []
    beyond: list[Declined] = []
    size, seconds, tables = 0, 0.0, set[str]()
    for item in ranked:
        why = ""
        if limits.max_bytes is not None and size + item.bytes_in > limits.max_bytes:
            why = (
                f"{size_text(item.bytes_in)} more than {size_text(size)} "
                f"are beyond max_bytes {size_text(limits.max_bytes)}"
            )
        elif limits.max_seconds is not None and seconds + item.seconds > limits.max_seconds:
            why = f"{item.seconds:.1f} s more than {seconds:.1f} s are beyond max_seconds {limits.max_seconds:g}"
        elif limits.max_tables is not None and len(tables | {item.table}) > limits.max_tables:
            why = f"{limits.max_tables} tables come first"
        if why:
            beyond.append(Declined(item.table, "later", f"{item.action}: {why}", {"action": item.action}))
            continue
        size, seconds = size + item.bytes_in, seconds + item.seconds
        tables.add(item.table)
        within.append(item)
    return within, beyond


def apply_combined(
    plan: CombinedPlan,
    open_table: Opening,
    *,
    approved_by: str | None = None,
    runner: Runner | None = None,
    tell: Callable[[CombinedLine], None] | None = None,
    rules: Rules | None = None,
) -> CombinedReport:
    """Apply the plan of every table in order, each plan separately.

    An item that an earlier call or a concurrent process applied is reported and not repeated. An item that fails, or
    whose table changed, is reported and does not stop later items. After ``max_seconds``, the remaining items wait for
    the next call.

    Args:
        plan: the combined plan.
        open_table: function that opens a table by name.
        approved_by: name of the person who approved the plan, for the ledgers; None without an approval.
        runner: executor of compaction tasks, None for this process.
        tell: callback that receives each line as soon as its item ends.
        rules: rules in addition to the tables' options; `Rules.why_not` is called before each item.
    """
    started = time.monotonic()
    lines: list[CombinedLine] = []
    with stage("applying the plans", len(plan.items), "plans"):
        for item in plan.items:
            start_seconds = time.monotonic()
            limit = plan.limits.max_seconds
            if limit is not None and start_seconds - started >= limit:
                line = CombinedLine(
                    item.table, item.action, "later", f"{limit:g} s are over; apply the plan again to go on"
                )
            else:
                line = _apply_item(item, open_table, approved_by, runner, rules)
                line = replace(line, seconds=round(time.monotonic() - start_seconds, 3))
            lines.append(line)
            if tell is not None:
                tell(line)
            reached(len(lines))
    return CombinedReport(plan.hash, tuple(lines), round(time.monotonic() - started, 3))


def _apply_item(
    item: CombinedItem, open_table: Opening, approved_by: str | None, runner: Runner | None, rules: Rules | None
) -> CombinedLine:
    def line(outcome: str, text: str, **more: Any) -> CombinedLine:
        return CombinedLine(item.table, item.action, outcome, text, **more)

    try:
        store = open_table(item.table)
        plan = load_plan(store, item.plan_hash)
        before = applied_before(store, plan)
        if before is not None:
            return line("already", before.text(), snapshot_id=before.snapshot_id)
        forbidden = None if rules is None else rules.why_not(store, plan)
        if forbidden is not None:
            return line("declined", forbidden.text)
        report = apply_plan(store, plan, runner, approved_by)
    except PlanStale as error:
        return line("already" if "already applied" in error.reason else "stale", str(error))
    except Exception as error:  # noqa: BLE001  (one table stops no other)
        return line("failed", f"{type(error).__name__}: {error}")
    if report.applied_before is not None:
        return line("already", report.applied_before.text(), snapshot_id=report.applied_before.snapshot_id)
    report_lines = report.lines(item.table)
    outcome = "done" if report.changed else "nothing"
    return line(outcome, report_lines[0] if report_lines else "", snapshot_id=report.published, run_id=report.run_id)
