"""Maintenance of all tables of a database or pattern: planning, saving, applying and resuming."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from typing import Protocol

from lsm_core.clock import Clock
from lsm_core.errors import CorruptFile, InvalidOption, PlanStale, TableNotFound
from lsm_core.maintenance.action import Declined
from lsm_core.maintenance.combined import (
    ROUTINE,
    CombinedLine,
    CombinedPlan,
    CombinedReport,
    Limits,
    Rules,
    apply_combined,
    plan_combined,
)
from lsm_core.metadata.store import TableStore
from lsm_core.options import duration, memory_size, whole_number
from lsm_core.storage import FileIO, check_name


class Tables(Protocol):
    """Protocol of the catalog methods that maintenance of many tables needs.

    Attributes:
        root: folder for saved plans.
        place: path or address of the warehouse, for messages.
        file_io: storage of :attr:`root`.
        clock: clock for the creation time of plans.
    """

    root: str
    place: str
    file_io: FileIO
    clock: Clock

    def list_databases(self) -> list[str]:
        """Return the names of all databases."""
        ...

    def list_tables(self, database: str) -> list[str]:
        """Return the names of the tables of one database. Raises DatabaseNotFound."""
        ...

    def store(self, name: str) -> TableStore:
        """Return the `TableStore` (paths, schema, options) of the table "db.table". Raises TableNotFound."""
        ...


def tables_matching(catalog: Tables, pattern: str) -> list[str]:
    """Return the names of the tables that match a pattern.

    Args:
        catalog: the catalog.
        pattern: "db" or "db.*" for all tables of a database, "*.orders", "db.log_?", or the name of one table.

    Raises:
        TableNotFound: no table matches.
        DatabaseNotFound: the database does not exist.
    """
    if not any(sign in pattern for sign in "*?["):
        if "." in pattern:
            return [catalog.store(pattern).name]
        return [f"{pattern}.{table}" for table in catalog.list_tables(pattern)]
    names = [f"{database}.{table}" for database in catalog.list_databases() for table in catalog.list_tables(database)]
    matches = [name for name in names if fnmatchcase(name, pattern)]
    if not matches:
        raise TableNotFound(f"no table of {catalog.place} matches {pattern}")
    return matches


def limits_of(max_bytes: int | str | None, max_tables: int | None, max_time: int | str | None) -> Limits:
    """Return the limits of a plan; sizes and times may be Paimon's texts ("10 gb", "1 h"). Raises InvalidOption."""
    size = memory_size(max_bytes, "max_bytes") if isinstance(max_bytes, str) else max_bytes
    span = duration(max_time, "max_time") if isinstance(max_time, str) else max_time
    size = None if size is None else whole_number(size, "max_bytes", least=0)
    tables = None if max_tables is None else whole_number(max_tables, "max_tables", least=1)
    seconds = None if span is None else whole_number(span, "max_time", least=0) / 1000
    return Limits(size, tables, seconds)


def plan_tables(
    catalog: Tables,
    pattern: str,
    actions: Sequence[str] | None,
    limits: Limits,
    *,
    save: bool = True,
    rules: Rules | None = None,
) -> CombinedPlan:
    """Plan the maintenance of all tables of a pattern.

    Args:
        catalog: the catalog.
        pattern: a database, or a pattern such as "db.*" or "*.orders".
        actions: names of actions; None for compaction, expiry of snapshots and sweep of the trash.
        limits: limits over all tables.
        save: whether the combined plan is kept in the warehouse, and the plan of each table in the table's directory.
        rules: rules that choose which actions are planned on which tables, and their order, such as the platform's
            policies; None to plan every action on every table.
    """
    names = tables_matching(catalog, pattern)
    chosen_actions, now = actions or ROUTINE, catalog.clock.now_ms()
    combined = plan_combined(
        names, catalog.store, pattern, chosen_actions, limits, created_ms=now, save=save, rules=rules
    )
    if save and combined.items:
        catalog.file_io.write_exclusive(_path(catalog, combined.hash), combined.to_json().encode())
    return combined


def load_combined(catalog: Tables, plan_hash: str) -> CombinedPlan:
    """Return a saved plan by its hash.

    Raises:
        PlanStale: no plan with this hash is kept, or the file of the plan holds a plan with a different hash.
        InvalidOption: the text is not a hash.
        CorruptFile: the plan's file cannot be read.
    """
    if not isinstance(plan_hash, str) or not re.fullmatch("[0-9a-f]{32}", plan_hash):
        raise InvalidOption("plan hash", plan_hash, "the hash of a saved plan: 32 hex digits")
    path = _path(catalog, plan_hash)
    try:
        plan = CombinedPlan.from_json(catalog.file_io.read_bytes(path).decode(errors="replace"))
    except FileNotFoundError as error:
        raise PlanStale(f"{catalog.place} has no saved plan with hash {plan_hash}") from error
    except CorruptFile as error:
        raise CorruptFile(path, error.reason) from error
    if plan.hash != plan_hash:
        raise PlanStale(f"the file {path} holds plan {plan.hash}")
    return plan


def maintain_tables(
    catalog: Tables,
    plan: CombinedPlan,
    approved_by: str | None = None,
    tell: Callable[[CombinedLine], None] | None = None,
    rules: Rules | None = None,
) -> CombinedReport:
    """Apply a combined plan, one table after the other.

    A table of the plan that does not exist becomes a line of the report.

    Args:
        catalog: the catalog.
        plan: the combined plan.
        approved_by: name of the approver for the ledger; None without an approval.
        tell: function that is called with each line of the report as soon as the line exists.
        rules: rules that are evaluated again before each part of the plan; None for no rules.
    """
    return apply_combined(plan, catalog.store, approved_by=approved_by, tell=tell, rules=rules)


def maintain_divided(
    catalog: Tables,
    pattern: str,
    actions: Sequence[str] | None,
    limits: Limits,
    approved_by: str | None = None,
    tell: Callable[[CombinedLine], None] | None = None,
    rules: Rules | None = None,
) -> tuple[CombinedReport, tuple[Declined, ...]]:
    """Plan and apply each table of a pattern separately, in the order of the names; no combined plan is kept.

    A table is planned after all earlier tables were maintained.

    Args:
        catalog: the catalog.
        pattern: a database, or a pattern such as "db.*" or "*.orders".
        actions: names of actions; None for compaction, expiry of snapshots and sweep of the trash.
        limits: limits over all tables together.
        approved_by: name of the approver for the ledger.
        tell: function that is called with each line of the report as soon as the line exists.
        rules: rules that choose which actions are planned on which tables, and their order, such as the platform's
            policies; None to plan every action on every table.

    Returns:
        The report with the lines of all tables, and the declined work: work that the limits or rules left out.

    Raises:
        TableNotFound: no table matches.
        InvalidOption: an action or limit cannot be used.
    """
    started, size, touched = time.monotonic(), 0, 0
    lines: list[CombinedLine] = []
    declined: list[Declined] = []
    for name in tables_matching(catalog, pattern):
        seconds = None if limits.max_seconds is None else limits.max_seconds - (time.monotonic() - started)
        if (seconds is not None and seconds <= 0) or touched == limits.max_tables:
            declined.append(
                Declined(name, "later", "the limit of time or tables is reached; the next call comes to it")
            )
            continue
        left = Limits(None if limits.max_bytes is None else max(limits.max_bytes - size, 0), None, seconds)
        plan = plan_combined(
            [name], catalog.store, name, actions or ROUTINE, left, created_ms=catalog.clock.now_ms(), rules=rules
        )
        report = apply_combined(plan, catalog.store, approved_by=approved_by, tell=tell, rules=rules)
        lines += report.lines
        declined += plan.declined
        size += sum(item.bytes_in for item in plan.items)
        touched += bool(plan.items)
    return CombinedReport("", tuple(lines), round(time.monotonic() - started, 3)), tuple(declined)


def _path(catalog: Tables, plan_hash: str) -> str:
    return f"{catalog.root}/dredge/plans/{check_name(plan_hash)}.json"
