"""Cache of opened tables that all sensors of a process share; a changed table is opened again.

A table has changed if its newest snapshot or its schema files differ from the cached ones: three small reads and no
manifest. The cache has no decisions. Decisions are made on every tick, so changes of ages, policies, failed checks and
runs apply at once.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from threading import Lock
from typing import Final

from dredge.platform_core.health import PartitionHealth, TableHealth, refusal_of, table_health
from dredge.platform_core.policies import (
    Decision,
    DecisionOutcome,
    DecisionScope,
    Now,
    Policy,
    Reason,
    TableFacts,
    decide_all,
)
from dredge.platform_core.policies.decisions import sort_rule
from dredge.platform_core.policies.rounds import facts_of, policy_for
from dredge.platform_core.policies.table_state import TableStatus, judge_metadata
from dredge.platform_core.resources.warehouse import WarehouseResource, card_of
from dredge.platform_core.table_card import TableCard
from lsm_core import Catalog
from lsm_core.clock import SystemClock
from lsm_core.format.snapshot import Snapshot
from lsm_core.maintenance.actions.compact.sort_order import read_sort_times
from lsm_core.maintenance.history_health import HistoryHealth, read_history_health
from lsm_core.metadata import snapshots
from lsm_core.metadata.store import TableStore, list_schema_ids
from lsm_core.storage import FileStatus, Kept

_KEPT_TABLES: Final = 20_000
"""Most opened tables that a process caches (about 10 KB each); beyond this number, the cache is emptied."""


@dataclass(frozen=True)
class OpenTable:
    """Opened table with policy and health, for one tick.

    Attributes:
        card: description of the table in the loaded definitions.
        policy: policy of the table.
        store: the opened table.
        health: health of the table's partitions.
        refusal: why maintenance does not touch the table's files, or None.
    """

    card: TableCard
    policy: Policy
    store: TableStore
    health: TableHealth
    refusal: str | None = None

    @property
    def name(self) -> str:
        """Full name of the table."""
        return self.card.name

    @cached_property
    def facts(self) -> TableFacts:
        """Facts about the table that decisions are based on."""
        facts = facts_of(self.store, self.health, self.refusal, prices=self.policy.cost)
        if sort_rule(facts, self.policy) is None and not any("sort" in rule.values for rule in self.policy.ages):
            return facts
        return replace(facts, sorted_ms=_sorted_times(self.store, self.health))

    @cached_property
    def statuses(self) -> Mapping[str, list[TableStatus]]:
        """Statuses by path of the partition ("" for the whole table), from the table's metadata alone."""
        by_partition: dict[str, list[TableStatus]] = {}
        for status in judge_metadata(self.facts, self.policy_of, self.now):
            by_partition.setdefault(status.partition, []).append(status)
        return by_partition

    def decisions(self, scope: DecisionScope) -> list[Decision]:
        """Return a decision (start a run or not) for each partition, or for the whole table, from metadata alone.

        Args:
            scope: kind of compaction to decide about.
        """
        return decide_all(self.facts, scope, self.policy_of, self.now)

    @property
    def now(self) -> Now:
        """Current time by the table's clock and by the wall clock.

        Raises InvalidOption for a clock that cannot be read.
        """
        return Now(self.store.clock.now_ms(), wall_ms())

    def policy_of(self, state: PartitionHealth | None) -> Policy:
        """Return the policy of a partition at its current age, or of the whole table if `state` is None."""
        return policy_for(self.policy, self.store, state)


_sorted: Final[dict[str, tuple[Hashable, dict[str, int]]]] = {}


def _sorted_times(store: TableStore, health: TableHealth) -> dict[str, int]:
    """Return the time (epoch ms) of the last sort compaction by partition path.

    Every sort compaction commits, so the ledger (record of maintenance runs) is read again only after a commit.
    """
    version = (health.snapshot, health.commit)
    cached = _sorted.get(store.root)
    if cached is not None and cached[0] == version:
        return cached[1]
    if len(_sorted) >= _KEPT_TABLES:
        _sorted.clear()
    times = read_sort_times(store)
    _sorted[store.root] = (version, times)
    return times


def wall_ms() -> int:
    """Return the wall-clock time (epoch ms), by which Dagster measures runs. An injected clock does not change it."""
    return SystemClock().now_ms()


@dataclass(frozen=True)
class CachedTable:
    """Opened table with its newest snapshot and schema files, by which later changes of the table are detected.

    Attributes:
        name: full name of the table.
        store: the opened table.
        refusal: why maintenance does not touch the table's files, or None.
        newest: newest snapshot of the table, or None before the first commit.
        schemas: schema files of the table.
    """

    name: str
    store: TableStore
    refusal: str | None
    newest: Snapshot | None
    schemas: tuple[FileStatus, ...]

    @cached_property
    def card(self) -> TableCard:
        """Current description of the table, to compare with the description in the loaded definitions."""
        return card_of(self.name, self.store, self.refusal)

    @property
    def is_stale(self) -> bool:
        """Whether the table was committed to, rolled back, altered, dropped or replaced after it was cached.

        Raises CorruptFile.
        """
        return _schema_files(self.store) != self.schemas or snapshots.latest(self.store) != self.newest


_cache: Final[dict[tuple[object, ...], CachedTable]] = {}
_lock: Final = Lock()


def load_table(warehouse: WarehouseResource, name: str, catalog: Catalog | None = None) -> CachedTable:
    """Return the current state of a table, from the cache if the table did not change.

    A table without snapshots is always opened. A table of a catalog with a metastore (such as JDBC) is always opened,
    too, because only the metastore knows the names of the tables.

    Raises:
        TableNotFound: the table does not exist.
        DatabaseNotFound: the database does not exist.
        CorruptFile: a metadata file is damaged.
        InvalidOption: an option is invalid.
        UnsupportedFeature: the table uses a feature that Dredge does not support.
    """
    cache_key = (warehouse.path, warehouse.clock, *sorted(warehouse.catalog_options.items()), name)
    cached = _cache.get(cache_key)
    if cached is None or cached.is_stale:
        opened = warehouse.catalog() if catalog is None else catalog
        store = opened.table(name).store
        # Keep this order: a change between two of these steps is then detected by the next look.
        files, newest = _schema_files(store), snapshots.latest(store)
        cached = CachedTable(name, store, refusal_of(store), newest, files)
        current = store.schema.id == max(list_schema_ids(store.file_io, store.root, store.branch), default=-1)
        if newest is not None and current and opened.options.metastore == "filesystem":
            with _lock:
                if len(_cache) >= _KEPT_TABLES:
                    _cache.clear()
                _cache[cache_key] = cached
    cached.store.kept = Kept()  # drop cached file contents: too much memory for thousands of tables
    return cached


def _schema_files(store: TableStore) -> tuple[FileStatus, ...]:
    return tuple(store.file_io.list_dir(f"{store.metadata_root}/schema"))


def open_table(
    warehouse: WarehouseResource, card: TableCard, policy: Policy, catalog: Catalog | None = None
) -> OpenTable | Decision:
    """Open a table and read its health, from the cache if the table did not change.

    Args:
        warehouse: the warehouse.
        card: description of the table in the loaded definitions.
        policy: policy of the table.
        catalog: catalog of the warehouse, if it is already open; None to open the catalog.

    Returns:
        The table. If it cannot be evaluated, the decision to do nothing on it, with the reason.
    """
    refusal: str | None = None
    try:
        look = load_table(warehouse, card.name, catalog)
        schema, refusal = look.store.schema, look.refusal
        same_keys = (schema.partition_keys, schema.primary_keys) == (card.partition_keys, card.primary_keys)
        health = table_health(look.store, look.newest)
    except Exception as error:  # noqa: BLE001  (one table stops no other)
        if refusal is not None:  # the keys of an unsupported table may not even be comparable
            return Decision(card.name, "", DecisionOutcome.DECLINE, Reason.UNSUPPORTED, refusal)
        return decline_unreadable(card, error)
    if card.unreadable or not same_keys:
        cause = (
            "it could not be read when definitions loaded"
            if card.unreadable
            else "its primary or partition keys changed"
        )
        text = f"{cause}: reload the code location"
        return Decision(card.name, "", DecisionOutcome.DECLINE, Reason.RELOAD, text)
    return OpenTable(card, policy, look.store, health, refusal)


def read_history(table: OpenTable) -> HistoryHealth:
    """Return the overdue work of a table's history, judged by the policy's retention and grace period.

    Raises:
        CorruptFile: a snapshot, tag, consumer or manifest list cannot be read.
    """

    def retention_at(time_ms: int) -> Mapping[str, int]:
        return table.policy.retention_arguments("expire_snapshots", time_ms)

    return read_history_health(table.store, grace_ms=table.policy.watch.overdue_after_ms, retention_at=retention_at)


def decline_unreadable(card: TableCard, error: Exception) -> Decision:
    """Return the decision to do nothing on a table, because it cannot be read.

    Args:
        card: description of the table.
        error: why the table cannot be read.
    """
    return Decision(card.name, "", DecisionOutcome.DECLINE, Reason.UNREADABLE, f"{type(error).__name__}: {error}")
