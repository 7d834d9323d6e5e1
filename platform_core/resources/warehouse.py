"""Resources of the warehouse: location, clock, tables (also unreadable ones) and ledgers."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from itertools import groupby
from pathlib import Path
from typing import Final

import dagster as dg
from pydantic import Field

from dredge.platform_core.health import refusal_of
from dredge.platform_core.names import NAME_VARIABLE, WarehouseNames
from dredge.platform_core.table_card import ColumnCard, TableCard
from lsm_core import Catalog, Table
from lsm_core.clock import Clock, clock_from, why_silent
from lsm_core.errors import CorruptFile, DredgeError, InvalidOption
from lsm_core.maintenance.action import action_names
from lsm_core.maintenance.ledger import LedgerEntry, new_run_id, read_ledger, write_entry
from lsm_core.metadata import TableStore
from lsm_core.options import is_address, mask_secrets, parse_catalog_options
from lsm_core.types import to_sql

_LOG = logging.getLogger(__name__)
WAREHOUSE_VARIABLE: Final = "DREDGE_WAREHOUSE"
CATALOG_VARIABLE: Final = "DREDGE_CATALOG_OPTIONS"
CLOCK_VARIABLE: Final = "DREDGE_CLOCK"
REPLAY_VARIABLE: Final = "DREDGE_REPLAY_STATE"
POLICIES_VARIABLE: Final = "DREDGE_POLICIES"
DEMO_WAREHOUSE: Final = ".dredge/demo/warehouse"
"""Default location of the warehouse: the demo's tables, relative to the folder that Dagster runs in."""


class WarehouseResource(dg.ConfigurableResource):  # type: ignore[type-arg]
    """Catalog of the warehouse, with the clock that measures all ages.

    While past events are replayed into the tables (in the demo), a file says so, and sensors and schedules start
    nothing.

    Attributes:
        path: location of the warehouse.
        clock: ``system``, ``fixed:<epoch ms>`` or ``file:<path>`` (`lsm_core.clock`).
        replay_state: path of a file whose text names the batches that are being replayed, empty between replays; ""
            for no file.
        policy_file: path of the YAML file of policies, or "".
        catalog_options: options of the catalog, such as JDBC settings; no secrets.
        include: patterns (``*`` and ``?``) of the names of tables, ``db.table``, that the platform maintains.
        exclude: patterns of the names of tables that it leaves out.
        variables: variables of the platform (`DREDGE_...`) that have priority over those of the process.
        inline_policies: policies of the component's attributes as a JSON object in the form of a policy file, or "".
        name: name of the warehouse in Dagster, or "" for that of `DREDGE_WAREHOUSE_NAME`, or else of the folder.
        prefix: name of the component, which begins the names of all definitions, or "".
    """

    path: str
    clock: str = "system"
    replay_state: str = ""
    policy_file: str = ""
    catalog_options: dict[str, str] = Field(default_factory=dict)
    include: list[str] = Field(default_factory=lambda: ["*"])
    exclude: list[str] = Field(default_factory=list)
    variables: dict[str, str] = Field(default_factory=dict)
    inline_policies: str = ""
    name: str = ""
    prefix: str = ""

    @property
    def policy_place(self) -> tuple[str, str]:
        """Arguments of `policy_source`: path of the policy file, and the policies of the component's attributes."""
        return self.policy_file, self.inline_policies

    @property
    def names(self) -> WarehouseNames:
        """Names that Dagster sees of this warehouse."""
        return WarehouseNames.of(self.path, self.name or None, self.prefix)

    def environment(self) -> dict[str, str]:
        """Return the variables of this process, overridden by those of the resource."""
        return {**os.environ, **self.variables}

    def covers(self, table: str) -> bool:
        """Return whether the platform maintains a table, by the patterns `include` and `exclude`.

        Args:
            table: full name of the table.
        """
        included = any(fnmatchcase(table, pattern) for pattern in self.include)
        return included and not any(fnmatchcase(table, pattern) for pattern in self.exclude)

    @classmethod
    def from_environment(
        cls,
        environment: Mapping[str, str] | None = None,
        *,
        include: Sequence[str] = ("*",),
        exclude: Sequence[str] = (),
        variables: Mapping[str, str] | None = None,
        inline_policies: str = "",
        prefix: str = "",
    ) -> WarehouseResource:
        """Read the resource from the environment.

        The variables are ``DREDGE_WAREHOUSE``, ``DREDGE_WAREHOUSE_NAME``, ``DREDGE_CATALOG_OPTIONS``, ``DREDGE_CLOCK``,
        ``DREDGE_REPLAY_STATE`` and ``DREDGE_POLICIES``.

        Args:
            environment: variables, or None for those of this process.
            include: patterns of the tables to maintain.
            exclude: patterns of the tables to leave out.
            variables: further variables that ticks and runs read from the resource, or None.
            inline_policies: policies as a JSON object, which replace the policy file; "" for none.
            prefix: name of the component, which begins the names of all definitions, or "".

        Raises:
            InvalidOption: a value is invalid, or the clock cannot be read.
        """
        values = os.environ if environment is None else environment
        resource = cls(
            path=warehouse_path(values),
            clock=values.get(CLOCK_VARIABLE, "").strip() or "system",
            replay_state=values.get(REPLAY_VARIABLE, "").strip(),
            policy_file="" if inline_policies else values.get(POLICIES_VARIABLE, "").strip(),
            catalog_options=parse_catalog_options(values.get(CATALOG_VARIABLE, ""), CATALOG_VARIABLE),
            include=list(include),
            exclude=list(exclude),
            variables=dict(variables or {}),
            name=values.get(NAME_VARIABLE, "").strip(),
            prefix=prefix,
            inline_policies=inline_policies,
        )
        resource.time()
        return resource

    def time(self) -> Clock:
        """Return the clock that measures ages. Raises ``InvalidOption`` if the clock cannot be read now."""
        try:
            clock = clock_from(self.clock)
        except ValueError as error:
            raise InvalidOption(CLOCK_VARIABLE, self.clock, "'system', 'fixed:<epoch ms>' or 'file:<path>'") from error
        problem = why_silent(clock)
        if problem is not None:
            raise InvalidOption(CLOCK_VARIABLE, self.clock, f"a file that holds epoch milliseconds ({problem})")
        return clock

    def catalog(self) -> Catalog:
        """Return the catalog of the warehouse. Raises ``InvalidOption`` if the clock cannot be read now."""
        return Catalog(self.path, self.catalog_options, clock=self.time())

    def table(self, name: str) -> Table:
        """Open a table by the full table name.

        Raises:
            TableNotFound: the table does not exist.
            CorruptFile: a metadata file is damaged.
            InvalidOption: an option is invalid.
        """
        return self.catalog().table(name)

    def store(self, name: str) -> TableStore:
        """Return the current state of a table as a `TableStore`, by the full table name."""
        return self.table(name).store

    def card(self, name: str) -> TableCard:
        """Return the current description of a table: name, keys and options, or why it cannot be opened."""
        return describe_table(self.catalog(), name)

    def replay_text(self) -> str | None:
        """Return a text like ``replay of batches 5-9 in progress`` while `replay_state` has text, else None.

        An unreadable state file counts as a running replay, so that no maintenance starts.
        """
        if not self.replay_state:
            return None
        try:
            batches = Path(self.replay_state).read_text(encoding="utf-8").strip()
        except FileNotFoundError:
            return None
        except (OSError, UnicodeDecodeError) as error:
            return f"the state of the replay cannot be read, so nothing starts: {error}"
        return f"replay of {batches} in progress" if batches else None


class LedgerResource(dg.ConfigurableResource):  # type: ignore[type-arg]
    """Ledgers (records of the maintenance runs) of all tables of a warehouse, to read and to add entries.

    Attributes:
        path: location of the warehouse.
        clock: clock of the warehouse.
        catalog_options: options of the catalog.
    """

    path: str
    clock: str = "system"
    catalog_options: dict[str, str] = Field(default_factory=dict)

    @classmethod
    def of(cls, warehouse: WarehouseResource) -> LedgerResource:
        """Return the ledger resource of a warehouse.

        The values are copied, because nested resources of Dagster do not support postponed annotations.
        """
        return cls(path=warehouse.path, clock=warehouse.clock, catalog_options=warehouse.catalog_options)

    def _store(self, table: str) -> TableStore:
        return WarehouseResource(path=self.path, clock=self.clock, catalog_options=self.catalog_options).store(table)

    def entries(self, table: str, limit: int | None = None) -> list[LedgerEntry]:
        """Return the ledger entries of a table, oldest first.

        Args:
            table: full name of the table.
            limit: most entries to return, or None for all.

        Raises:
            CorruptFile: an entry is damaged.
            TableNotFound: the table does not exist.
        """
        return read_ledger(self._store(table), limit)

    def record_failure(self, table: str, run_id: str, plan_hash: str, error: str, action_text: str = "compact") -> str:
        """Write an entry for a failed Dagster run to the ledger of a table.

        Args:
            table: full name of the table.
            run_id: id of the run.
            plan_hash: hash of the run's plan, or "".
            error: error of the run.
            action_text: action tag of the run, like "compact full". An unknown action is recorded as a compaction.

        Returns:
            The path of the entry.

        Raises:
            TableNotFound: the table does not exist.
            StorageFull: the entry cannot be written.
        """
        store, words = self._store(table), action_text.split()
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
    """Return the location of the warehouse: ``DREDGE_WAREHOUSE``, or else the location of the demo's tables.

    File system paths become absolute.
    """
    values = os.environ if environment is None else environment
    path = values.get(WAREHOUSE_VARIABLE, "").strip() or DEMO_WAREHOUSE
    return path if is_address(path) else str(Path(path).expanduser().absolute())


def list_tables(warehouse: WarehouseResource, catalog: Catalog | None = None) -> tuple[list[str], list[str]]:
    """Return the names of the tables to maintain, and a line for each database or table that cannot be listed.

    A warehouse that does not exist has no tables.

    Args:
        warehouse: the warehouse, whose patterns choose the tables.
        catalog: the open catalog of the warehouse, or None to open it.

    Returns:
        Full names of tables, sorted, and the lines.

    Raises:
        InvalidOption: the warehouse is not a readable folder.
    """
    catalog = catalog or warehouse.catalog()
    try:
        databases = catalog.list_databases()
    except (OSError, CorruptFile) as error:
        reason = error.strerror if isinstance(error, OSError) else error.reason
        raise InvalidOption(WAREHOUSE_VARIABLE, catalog.root, f"a readable folder ({reason})") from error
    tables: list[str] = []
    troubles: list[str] = []
    for database in databases:
        try:
            listed = catalog.list_tables(database)
            lost_schemas = catalog.list_lost_schemas(database, listed)
        except Exception as error:  # noqa: BLE001  (one database stops no other)
            troubles.append(f"database {database!r} is left out: {error}")
            continue
        full_names = [name for table in listed if warehouse.covers(name := f"{database}.{table}")]
        tables += [name for name in full_names if name.isprintable()]
        covered = {name: text for name, text in lost_schemas.items() if warehouse.covers(name) and name.isprintable()}
        troubles += [f"table {name} is left out: {text}" for name, text in covered.items()]
        troubles += [
            f"table {name!r} is left out: its name cannot be shown" for name in full_names if not name.isprintable()
        ]
    return sorted(tables), troubles


def describe_warehouse(
    warehouse: WarehouseResource,
    troubles: list[str] | None = None,
    describe: Callable[[Catalog, str], TableCard] | None = None,
) -> list[TableCard]:
    """Return a card for each table; a table that cannot be opened gets a card with the reason.

    Args:
        warehouse: the warehouse.
        troubles: list to which a line is added for each table or database that cannot be listed; None to log the lines.
        describe: function that returns the card of one table; None for `describe_table`.

    Raises:
        InvalidOption: the warehouse is not a readable folder.
    """
    catalog = warehouse.catalog()
    names, left_out = list_tables(warehouse, catalog)
    if troubles is not None:
        troubles += left_out
    else:
        for line in left_out:
            _LOG.warning("%s", line)
    cards: list[TableCard] = []
    for database, tables in groupby(names, key=lambda name: name.partition(".")[0]):
        try:
            catalog.read_ahead(database)
        except DredgeError as error:
            _LOG.warning("database %s: %s", database, error)
        cards += [(describe or describe_table)(catalog, name) for name in tables]
    return cards


def describe_table(catalog: Catalog, name: str) -> TableCard:
    """Return the description of a table from its schema (name, keys, options), or why it cannot be opened."""
    try:
        store = catalog.table(name).store
        return card_of(name, store, refusal_of(store))
    except Exception as error:  # noqa: BLE001  (one table stops no other)
        return TableCard(name=name, refusal=str(error), unreadable=True)


def card_of(name: str, store: TableStore, refusal: str | None) -> TableCard:
    """Return the description (name, keys, options) of an open table.

    Args:
        name: full name of the table.
        store: the open table.
        refusal: why maintenance does not touch the table's files, or None.

    Raises:
        UnsupportedFeature: SQL has no name for a column's type.
    """
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
