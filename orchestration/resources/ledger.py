"""The ledger as a resource: what maintenance did to a table, who asked and how it ended, kept beside the table itself."""

from __future__ import annotations

import dagster as dg

from lsm_core.maintenance.record import LedgerEntry, new_run_id, read_ledger, write_entry
from lsm_core.metadata.store import TableStore
from orchestration.resources.warehouse import WarehouseResource


class LedgerResource(dg.ConfigurableResource):  # type: ignore[type-arg]
    """Reads and adds to the ledgers of all tables of the warehouse at ``path``; ``clock`` as the warehouse's."""

    path: str
    clock: str = "system"

    @classmethod
    def of(cls, warehouse: WarehouseResource) -> LedgerResource:
        """Return the ledger of ``warehouse`` (as plain values: nested resources do not go with postponed annotations)."""
        return cls(path=warehouse.path, clock=warehouse.clock)

    def _store(self, table: str) -> TableStore:
        return WarehouseResource(path=self.path, clock=self.clock).store(table)

    def entries(self, table: str, limit: int | None = None) -> list[LedgerEntry]:
        """Return what was done to the table, oldest first; raises ``CorruptFile``, ``TableNotFound``."""
        return read_ledger(self._store(table), limit)

    def record_failure(self, table: str, run_id: str, plan_hash: str, error: str) -> str:
        """Write down that a Dagster run failed and return the entry's path; raises ``TableNotFound``, ``StorageFull``."""
        store = self._store(table)
        entry = LedgerEntry(
            run_id=new_run_id(store, "compact"),
            action="compact",
            table=table,
            time_ms=store.clock.now_ms(),
            outcome="failed",
            plan_hash=plan_hash,
            approved_by=f"dagster run {run_id}",
            error=error,
        )
        return write_entry(store, entry)
