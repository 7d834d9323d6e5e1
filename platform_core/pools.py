"""Steps that wait for a pool although it has a free slot: a lost wake-up of Dagster, which is found and healed here.

A step of Dagster first reads whether its pool has a free slot, and then joins the queue of the pool. If the last slot
is freed between both, nothing assigns it to the step. The step then waits until another step of the pool ends, perhaps
forever.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import dagster as dg

from dredge.platform_core import names
from dredge.platform_core.dagster_internals import assign_pending_step

STUCK_MS: Final = 2 * 60 * 1000
"""Time (ms) after which a step counts as forgotten. Dagster assigns a free slot within a second."""
_MOST_POOLS: Final = 2_000


@dataclass(frozen=True)
class ForgottenStep:
    """Step that waits for a pool with a free slot.

    Attributes:
        pool: name of the pool.
        run_id: id of the run.
        step: key of the step.
        waited_ms: time for which it has waited (ms).
        is_healed: whether the slot was assigned to it now.
    """

    pool: str
    run_id: str
    step: str
    waited_ms: int
    is_healed: bool = False

    def text(self) -> str:
        """Return what happened, and the remedy if the slot could not be assigned."""
        waited = f"step {self.step} of run {self.run_id[:8]} has waited {self.waited_ms // 60_000} min for a free slot"
        if self.is_healed:
            return f"{waited}, which Dagster had not assigned to it; it is assigned now"
        return (
            f"{waited}, which Dagster does not assign to it: cancel the run and launch it again, or raise the limit of "
            "the pool under Deployment, Concurrency, and set it back"
        )


def assign_forgotten_steps(
    instance: dg.DagsterInstance, warehouse_names: names.WarehouseNames, now_ms: int
) -> list[ForgottenStep]:
    """Assign free slots of a warehouse's pools to the steps that wait for them, and return these steps.

    Args:
        instance: Dagster instance.
        warehouse_names: names of the warehouse in Dagster.
        now_ms: epoch ms by the wall clock.
    """
    storage = instance.event_log_storage
    if not storage.supports_global_concurrency_limits or not storage.get_concurrency_run_ids():
        return []
    pools = sorted(pool for pool in storage.get_concurrency_keys() if warehouse_names.is_pool(pool))[:_MOST_POOLS]
    forgotten = [
        step for pool, info in _read_pools(storage, pools).items() for step in _find_forgotten(pool, info, now_ms)
    ]
    for step in forgotten:
        assign_pending_step(instance, step.pool)
    if not forgotten:
        return []
    assigned = {
        (pool, step.run_id, step.step_key)
        for pool, info in _read_pools(storage, sorted({step.pool for step in forgotten})).items()
        for step in info.pending_steps
        if step.assigned_timestamp is not None
    }
    return [replace(step, is_healed=(step.pool, step.run_id, step.step) in assigned) for step in forgotten]


def _read_pools(storage: Any, pools: Sequence[str]) -> Mapping[str, Any]:
    """Return the slots and the waiting steps of pools, by name of the pool.

    Dagster reads many pools at once since 1.13, before one by one.
    """
    if hasattr(storage, "get_concurrency_infos"):
        infos: Mapping[str, Any] = storage.get_concurrency_infos(pools)
        return infos
    return {pool: storage.get_concurrency_info(pool) for pool in pools}


def _find_forgotten(pool: str, info: Any, now_ms: int) -> list[ForgottenStep]:
    """Return the steps that Dagster would have assigned long ago to the free slots of a pool.

    Args:
        pool: name of the pool.
        info: slots and waiting steps of the pool (Dagster's `ConcurrencyKeyInfo`).
        now_ms: epoch ms by the wall clock.
    """
    waiting = sorted(
        (step for step in info.pending_steps if step.assigned_timestamp is None),
        key=lambda step: (-(step.priority or 0), step.enqueued_timestamp),
    )
    waited_ms = [now_ms - int(step.enqueued_timestamp.timestamp() * 1000) for step in waiting]
    free = max(0, info.slot_count - info.assigned_step_count)
    return [
        ForgottenStep(pool, step.run_id, step.step_key, waited)
        for step, waited in zip(waiting[:free], waited_ms[:free], strict=True)
        if waited >= STUCK_MS
    ]
