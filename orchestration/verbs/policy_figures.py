"""Figures of tables that depend on the policy file, for `dredge metrics` and `dredge status`."""

from __future__ import annotations

from collections.abc import Iterator

from lsm_core.maintenance.metrics import Sample
from lsm_core.maintenance.promise_history import measure_promises
from lsm_core.metadata.store import TableStore
from platform_core.policies.policy import Policy
from platform_core.policies.policy_files import load_policies
from platform_core.policies.promises import WINDOW_MS, Promise, judge_promises


def read_promises(store: TableStore, policy: Policy) -> list[Promise]:
    """Return the promises of a table, measured over the last week.

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
    del since_ms
    policies = load_policies()
    if store is None:
        yield Sample("dredge_policy_file_valid", int(not policies.trouble))
        return
    for promise in read_promises(store, policies.of(store.name)):
        labels = {"table": store.name, "promise": promise.name}
        measured = promise.measured
        if measured.share is not None:
            yield Sample("dredge_promise_within_ratio", round(measured.share, 6), labels)
        if measured.is_within is not None:
            yield Sample("dredge_promise_met", int(measured.is_within), labels)
        yield Sample("dredge_promise_known_ratio", round(measured.known_share, 6), labels)
        yield Sample("dredge_promise_target_ratio", round(promise.target / 100, 6), labels)


def promise_lines(store: TableStore) -> list[str]:
    """Return a line for each promise of a table, for `dredge status`.

    Args:
        store: the table.

    Raises:
        CorruptFile: a snapshot or manifest cannot be read.
    """
    return [promise.text() for promise in read_promises(store, load_policies().of(store.name))]
