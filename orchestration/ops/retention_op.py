"""Expire: let old snapshots of one table go, then sweep the trash whose grace is over; a blocked table keeps everything."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import dagster as dg

from lsm_core.errors import DredgeError
from lsm_core.maintenance import Declined, ExpiryReport, SweepReport, apply_plan, plan_expiry, plan_sweep
from lsm_core.metadata.store import TableStore
from orchestration import names
from orchestration.blocked import blocking_failure
from orchestration.quirks import typed
from orchestration.resources.warehouse import WarehouseResource
from orchestration.table_card import TableCard, size_text

_SHOWN = 20


@dataclass(frozen=True)
class Retired:
    """What one retention run did to one table."""

    expiry: ExpiryReport
    sweep: SweepReport


def expire_op(card: TableCard, layout: dg.AssetKey) -> dg.OpDefinition:
    """Return the op that keeps ``card``'s table from growing old snapshots."""

    @dg.op(
        name=names.op_name("expire", card.name),
        description=f"Expire old snapshots of {card.name} (files go to the trash), then delete what the trash held long enough.",
        out=dg.Out(dg.Nothing),
        pool=names.table_pool(card.name),
        tags={"dagster/kind/dredge": ""},
    )
    @typed
    def expire(context: dg.OpExecutionContext, warehouse: WarehouseResource) -> None:
        reason = card.refusal or blocking_failure(context.instance, layout)
        if reason is not None:
            context.log.info(f"{card.name}: nothing expires: {reason}")
            return
        try:
            done = retire(warehouse.store(card.name), f"dagster run {context.run_id}")
        except DredgeError as error:
            raise dg.Failure(f"{card.name}: {type(error).__name__}: {error}") from error
        context.log.info(f"{card.name}: {summary(done)}")
        context.log_event(dg.AssetObservation(layout, description=summary(done), metadata=retention_metadata(done)))

    return expire


def retire(store: TableStore, approved_by: str) -> Retired:
    """Apply the table's own retention, then sweep the trash. Raises ``PlanStale``, ``PlanRefused``, ``CorruptFile``."""
    expiry = apply_plan(store, plan_expiry(store), approved_by=approved_by)
    sweep = apply_plan(store, plan_sweep(store), approved_by=approved_by)
    if not isinstance(expiry, ExpiryReport) or not isinstance(sweep, SweepReport):
        raise TypeError(f"retention of {store.name} answered with {type(expiry).__name__} and {type(sweep).__name__}")
    return Retired(expiry, sweep)


def summary(done: Retired) -> str:
    """Return one line: what expired, what was freed, and what is held."""
    expiry, sweep = done.expiry, done.sweep
    gone = f"snapshots {expiry.expired[0]} to {expiry.expired[-1]} expired" if expiry.expired else "no snapshot expires"
    freed = f"{sweep.files_deleted + expiry.files_deleted} files deleted ({size_text(sweep.bytes_freed + expiry.bytes_freed)})"
    bad = "".join(f"; deletion record {item.subject} is left out: {item.text}" for item in sweep.unreadable)
    held = len(expiry.held) + len(sweep.kept)
    return f"{gone}; {expiry.files_recorded} files to the trash; {freed}; {held} held back{bad}"


def retention_metadata(done: Retired) -> dict[str, dg.MetadataValue]:
    """Return the numbers of a retention run; that something expired does not mean that it is deleted, so holders are named."""
    expiry, sweep = done.expiry, done.sweep
    return {
        "snapshots expired": dg.MetadataValue.int(len(expiry.expired)),
        "files to the trash": dg.MetadataValue.int(expiry.files_recorded),
        "files deleted": dg.MetadataValue.int(sweep.files_deleted + expiry.files_deleted),
        "bytes freed": dg.MetadataValue.int(sweep.bytes_freed + expiry.bytes_freed),
        "files held back": dg.MetadataValue.int(len(expiry.held) + len(sweep.kept)),
        "held by": dg.MetadataValue.md(_held((*expiry.held, *sweep.kept))),
        "kept": dg.MetadataValue.md(_held((*expiry.declined, *sweep.declined))),
    }


def _held(items: Sequence[Declined]) -> str:
    lines = [f"- `{item.subject}`: {item.text}" for item in items[:_SHOWN]]
    more = [f"- and {len(items) - _SHOWN} more"] if len(items) > _SHOWN else []
    return "\n".join([*lines, *more]) or "nothing"
