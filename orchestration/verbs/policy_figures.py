"""Figures of tables that depend on the policy file, for `dredge metrics` and `dredge status`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dredge.platform_core.health import table_health
from dredge.platform_core.policies import Decision, DecisionOutcome, Reason
from dredge.platform_core.policies.costs import Month, cost_lines
from dredge.platform_core.policies.policy import Policy
from dredge.platform_core.policies.policy_files import load_policies
from dredge.platform_core.policies.promises import WINDOW_MS, Promise, judge_promises
from dredge.platform_core.policies.rounds import judge_table
from dredge.platform_core.policies.table_state import judge_undecided
from lsm_core.maintenance.ledger import iterate_ledger
from lsm_core.maintenance.metrics import Sample
from lsm_core.maintenance.promise_history import measure_promises
from lsm_core.metadata.store import TableStore


def read_promises(store: TableStore, policy: Policy) -> list[Promise]:
    """Return the promises of a table (service level objectives, ``slo`` in its policy), measured over the last week.

    Args:
        store: the table.
        policy: policy of the table.

    Raises:
        CorruptFile: a snapshot or manifest cannot be read.
    """
    now, slo = store.clock.now_ms(), policy.slo
    measured = measure_promises(
        store, now - WINDOW_MS, now, sorted_runs=slo.sorted_runs_p95, freshness_ms=slo.freshness_ms
    )
    return judge_promises(slo, measured)


def metric_samples(store: TableStore | None, since_ms: int) -> Iterator[Sample]:
    """Yield the samples that depend on the policy file, for `dredge metrics`.

    Args:
        store: the table, or None for the samples of the whole warehouse.
        since_ms: start of the window of ledger runs (epoch ms).

    Raises:
        CorruptFile: a snapshot or manifest cannot be read.
    """
    policies = load_policies()
    if store is None:
        yield Sample("dredge_policy_file_valid", int(not policies.trouble))
        return
    policy = policies.of(store.name)
    yield from _cost_samples(store, policy, since_ms)
    for promise in read_promises(store, policy):
        labels = {"table": store.name, "promise": promise.name}
        measured = promise.measured
        if measured.share is not None:
            yield Sample("dredge_promise_within_ratio", round(measured.share, 6), labels)
        if measured.is_within is not None:
            yield Sample("dredge_promise_met", int(measured.is_within), labels)
        yield Sample("dredge_promise_known_ratio", round(measured.known_share, 6), labels)
        yield Sample("dredge_promise_target_ratio", round(promise.target / 100, 6), labels)


def _cost_samples(store: TableStore, policy: Policy, since_ms: int) -> Iterator[Sample]:
    """Yield the prices of the runs since a time and of storage; nothing for tables without prices."""
    prices, now = policy.cost, store.clock.now_ms()
    if not prices.has_prices:
        return
    labels = {"table": store.name, "owner": ", ".join(policy.owners) or "-", "currency": prices.currency}
    (line,) = cost_lines(
        store.name,
        labels["owner"],
        prices,
        iterate_ledger(store, heads=True, since_ms=since_ms),
        [Month("window", since_ms, now + 1)],
        now,
        stored=None,
        open_file_cost=store.options.open_file_cost,
    )
    yield Sample("dredge_cost_runs", round(line.work, 9), labels)
    if line.saved is not None:
        yield Sample("dredge_cost_saved_reads", round(line.saved, 9), labels)
    if prices.gb_month is not None:
        yield Sample("dredge_storage_price", prices.gb_month, labels)


def promise_lines(store: TableStore) -> list[str]:
    """Return a line for each promise of a table, for `dredge status`.

    Args:
        store: the table.

    Raises:
        CorruptFile: a snapshot or manifest cannot be read.
    """
    return [promise.text() for promise in read_promises(store, load_policies().of(store.name))]


def read_state(store: TableStore | None, error: Exception | None = None) -> dict[str, Any]:
    """Return the state of a table for `dredge status`, as far as metadata and the policy file show it.

    Runs, checks and budgets are unknown outside Dagster: `warehouse_health` and `dredge report` show them.

    Args:
        store: the table, or None if it cannot be read.
        error: why the table cannot be read.

    Returns:
        The state, its rank from 0 for the most urgent state, the reason, and the next step.

    Raises:
        CorruptFile: a snapshot or manifest cannot be read.
    """
    if store is None:
        text = f"{type(error).__name__}: {error}"
        status = judge_undecided(Decision("", "", DecisionOutcome.DECLINE, Reason.UNREADABLE, text))
        return {"state": status.label, "state_rank": status.state.rank, "why": "", "next": status.next_step()}
    status = judge_table(store, table_health(store), load_policies().of(store.name))
    return {"state": status.label, "state_rank": status.state.rank, "why": status.why, "next": status.next_step()}
