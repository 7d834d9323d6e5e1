"""The warehouse under care: where it lies, what time it is there, and which tables it holds, readable or not."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import dagster as dg
from pydantic import Field

from lsm_core import Catalog, Table
from lsm_core.clock import Clock, clock_from, why_silent
from lsm_core.errors import CorruptFile, InvalidOption
from lsm_core.maintenance.action import action_names
from lsm_core.maintenance.record import LedgerEntry, new_run_id, read_ledger, write_entry
from lsm_core.metadata import TableStore
from lsm_core.options import mask_secrets, parse_catalog_options
from lsm_core.types import to_sql
from orchestration.health import refusal_of
from orchestration.table_card import ColumnCard, TableCard

_LOG = logging.getLogger(__name__)
WAREHOUSE_VARIABLE: Final = "DREDGE_WAREHOUSE"
CATALOG_VARIABLE: Final = "DREDGE_CATALOG_OPTIONS"
CLOCK_VARIABLE: Final = "DREDGE_CLOCK"
REPLAY_VARIABLE: Final = "DREDGE_REPLAY_STATE"
POLICIES_VARIABLE: Final = "DREDGE_POLICIES"
DEMO_WAREHOUSE: Final = ".dredge/demo/warehouse"
"""Where the demo keeps its tables, below the folder that Dagster runs in."""


class WarehouseResource(dg.ConfigurableResource):  # type: ignore[type-arg]
    """A catalog, the clock that measures all ages, and the sign of a replay in flight.

    ``catalog_options`` are those of the catalog (JDBC and the like; no secrets); ``clock`` is ``system`` or ``file:<path>`` (`lsm_core.clock`); ``replay_state`` names a file whose text, while there is
    any, says what is being replayed; ``policy_file`` the YAML file of policies ("": none).
    """

    path: str
    clock: str = "system"
    replay_state: str = ""
    policy_file: str = ""
    catalog_options: dict[str, str] = Field(default_factory=dict)

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> WarehouseResource:
        """Read ``DREDGE_WAREHOUSE``, ``DREDGE_CATALOG_OPTIONS``, ``DREDGE_CLOCK`` and ``DREDGE_REPLAY_STATE``; raises ``InvalidOption``."""
        values = os.environ if environment is None else environment
        found = cls(
            path=warehouse_path(values),
            clock=values.get(CLOCK_VARIABLE, "").strip() or "system",
            replay_state=values.get(REPLAY_VARIABLE, "").strip(),
            policy_file=values.get(POLICIES_VARIABLE, "").strip(),
            catalog_options=parse_catalog_options(values.get(CATALOG_VARIABLE, ""), CATALOG_VARIABLE),
        )
        found.time()
        return found

    def time(self) -> Clock:
        """Return the injected clock; raises ``InvalidOption`` naming variable and file when it tells no time now."""
        try:
            clock = clock_from(self.clock)
        except ValueError as error:
            raise InvalidOption(CLOCK_VARIABLE, self.clock, "'system', 'fixed:<epoch ms>' or 'file:<path>'") from error
        silent = why_silent(clock)
        if silent is not None:
            raise InvalidOption(CLOCK_VARIABLE, self.clock, f"a file that holds epoch milliseconds ({silent})")
        return clock

    def catalog(self) -> Catalog:
        """Return the catalog over the warehouse; raises ``InvalidOption`` as :meth:`time`."""
        return Catalog(self.path, self.catalog_options, clock=self.time())

    def table(self, name: str) -> Table:
        """Open ``db.table``; raises ``TableNotFound``, ``CorruptFile``, ``InvalidOption``."""
        return self.catalog().table(name)

    def store(self, name: str) -> TableStore:
        """Open the state of ``db.table`` as it is now."""
        return self.table(name).store

    def card(self, name: str) -> TableCard:
        """Describe ``db.table`` as it is now; one that cannot be opened gets a card that says why."""
        return describe_table(self.catalog(), name)

    def replaying(self) -> str | None:
        """Return ``replay of batches 5-9 in progress`` while the state file says so, else None; unreadable, it keeps all still."""
        if not self.replay_state:
            return None
        try:
            what = Path(self.replay_state).read_text(encoding="utf-8").strip()
        except FileNotFoundError:
            return None
        except (OSError, UnicodeDecodeError) as error:
            return f"whether a replay is in progress cannot be told: {error}"
        return f"replay of {what} in progress" if what else None


class LedgerResource(dg.ConfigurableResource):  # type: ignore[type-arg]
    """Reads and adds to the ledgers of all tables of the warehouse at ``path``; ``clock`` as the warehouse's."""

    path: str
    clock: str = "system"
    catalog_options: dict[str, str] = Field(default_factory=dict)

    @classmethod
    def of(cls, warehouse: WarehouseResource) -> LedgerResource:
        """Return the ledger of ``warehouse`` (as plain values: nested resources do not go with postponed annotations)."""
        return cls(path=warehouse.path, clock=warehouse.clock, catalog_options=warehouse.catalog_options)

    def _store(self, table: str) -> TableStore:
        return WarehouseResource(path=self.path, clock=self.clock, catalog_options=self.catalog_options).store(table)

    def entries(self, table: str, limit: int | None = None) -> list[LedgerEntry]:
        """Return what was done to the table, oldest first; raises ``CorruptFile``, ``TableNotFound``."""
        return read_ledger(self._store(table), limit)

    def record_failure(self, table: str, run_id: str, plan_hash: str, error: str, asked: str = "compact") -> str:
        """Write down that a Dagster run failed and return the entry's path; raises ``TableNotFound``, ``StorageFull``.

        ``asked``: what its tag says that it was to do ("compact full"); what is no action is written down as a compaction.
        """
        store, words = self._store(table), asked.split()
        action = words[0] if words and words[0] in action_names() else "compact"
        entry = LedgerEntry(
            run_id=new_run_id(store, action),
            action=action,
            table=table,
            time_ms=store.clock.now_ms(),
            outcome="failed",
            plan_hash=plan_hash,
            approved_by=f"dagster run {run_id}",
            error=error,
        )
        return write_entry(store, entry)


def warehouse_path(environment: Mapping[str, str] | None = None) -> str:
    """Return where the warehouse lies: ``DREDGE_WAREHOUSE``, else the demo's; file system paths become absolute."""
    values = os.environ if environment is None else environment
    given = values.get(WAREHOUSE_VARIABLE, "").strip() or DEMO_WAREHOUSE
    return given if "://" in given else str(Path(given).expanduser().absolute())


def list_tables(catalog: Catalog) -> tuple[list[str], list[str]]:
    """Return every ``db.table``, sorted, and a line for everything that cannot be listed; a missing warehouse has none.

    Raises ``InvalidOption`` when the warehouse itself is no folder that can be read.
    """
    try:
        databases = catalog.list_databases()
    except (OSError, CorruptFile) as error:
        reason = error.strerror if isinstance(error, OSError) else error.reason
        raise InvalidOption(WAREHOUSE_VARIABLE, catalog.root, f"a folder that can be read ({reason})") from error
    tables: list[str] = []
    troubles: list[str] = []
    for database in databases:
        try:
            found = [f"{database}.{name}" for name in catalog.list_tables(database)]
        except Exception as error:  # noqa: BLE001  (one database stops no other)
            troubles.append(f"database {database!r} is left out: {error}")
            continue
        tables += [name for name in found if name.isprintable()]
        troubles += [
            f"table {name!r} is left out: its name cannot be shown" for name in found if not name.isprintable()
        ]
    return sorted(tables), troubles


def describe_warehouse(
    warehouse: WarehouseResource,
    troubles: list[str] | None = None,
    describe: Callable[[Catalog, str], TableCard] | None = None,
) -> list[TableCard]:
    """Describe every table, one card each (by ``describe``); a table that cannot be opened gets a card that says why.

    What cannot even be listed goes to ``troubles``, or to the log. Raises ``InvalidOption`` when the warehouse is no folder.
    """
    catalog = warehouse.catalog()
    names, left_out = list_tables(catalog)
    if troubles is not None:
        troubles += left_out
    else:
        for line in left_out:
            _LOG.warning("%s", line)
    return [(describe or describe_table)(catalog, name) for name in names]


def describe_table(catalog: Catalog, name: str) -> TableCard:
    """Describe one table from its schema alone."""
    try:
        store = catalog.table(name).store
        return card_of(name, store, refusal_of(store))
    except Exception as error:  # noqa: BLE001  (one table stops no other)
        return TableCard(name=name, refusal=str(error), unreadable=True)


def card_of(name: str, store: TableStore, refusal: str | None) -> TableCard:
    """Describe an open table, which maintenance leaves alone for ``refusal`` (None: it does not). Raises ``UnsupportedFeature`` for a type that SQL has no name for."""
    schema = store.schema
    columns = tuple(
        ColumnCard(column.name, to_sql(column.type), column.type.nullable, column.description or "")
        for column in schema.fields
    )
    return TableCard(
        name=name,
        primary_keys=schema.primary_keys,
        partition_keys=schema.partition_keys,
        columns=columns,
        options=mask_secrets(schema.options),
        comment=schema.comment or "",
        root=store.root,
        refusal=refusal,
    )
