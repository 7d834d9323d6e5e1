"""Tables as ticks find them: one that did not move since somebody in this process looked is neither opened nor read again, whichever sensor asks.

A table has moved when its newest snapshot or the files of its schemas are others than then: three small reads and no manifest. What is kept
holds no decision. Those are made anew on every tick, so that ages, policies, failed checks and runs at work count at once.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace
from functools import cached_property
from threading import Lock
from typing import Final

from lsm_core import Catalog
from lsm_core.clock import SystemClock
from lsm_core.format.snapshot import Snapshot
from lsm_core.maintenance.sorted_partitions import sorted_times
from lsm_core.metadata import schemas, snapshots
from lsm_core.metadata.store import TableStore
from lsm_core.storage import FileStatus, Kept
from orchestration.health import PartitionHealth, TableHealth, refusal_of, table_health
from orchestration.policies import Asked, Decision, Now, Outcome, Policy, Reason, TableFacts, decide_all
from orchestration.policies.decisions import sort_rule
from orchestration.policies.rounds import facts_of, policy_for
from orchestration.resources.warehouse import WarehouseResource, card_of
from orchestration.table_card import TableCard

_KEPT_TABLES: Final = 20_000
"""How many opened tables a process keeps (some 10 KB each); with more it forgets all and opens them again."""


@dataclass(frozen=True)
class OpenTable:
    """A table as a tick found it. ``refusal`` says why maintenance leaves its files alone, None where it does not."""

    card: TableCard
    policy: Policy
    store: TableStore
    health: TableHealth
    refusal: str | None = None

    @property
    def name(self) -> str:
        """The table."""
        return self.card.name

    @cached_property
    def facts(self) -> TableFacts:
        """What decisions are made from."""
        facts = facts_of(self.store, self.health, self.refusal)
        if sort_rule(facts, self.policy) is None and not any("sort" in rule.values for rule in self.policy.ages):
            return facts
        return replace(facts, sorted_ms=_sorted_times(self.store, self.health))

    def decisions(self, asked: Asked) -> list[Decision]:
        """Return what its metadata alone say of each partition, or of all of it, at this moment."""
        return decide_all(self.facts, asked, self.policy_of, self.now)

    @property
    def now(self) -> Now:
        """The time by its clock, and by the wall's. Raises InvalidOption for a clock that cannot be read."""
        return Now(self.store.clock.now_ms(), wall_ms())

    def policy_of(self, state: PartitionHealth | None) -> Policy:
        """Return what holds for one partition, by its age now; None: for the table."""
        return policy_for(self.policy, self.store, state)


_sorted: Final[dict[str, tuple[Hashable, dict[str, int]]]] = {}


def _sorted_times(store: TableStore, health: TableHealth) -> dict[str, int]:
    """Return when each partition was last sorted; the ledger is read again once the table moved, as every sort moves it."""
    moved = (health.snapshot, health.commit)
    known = _sorted.get(store.root)
    if known is not None and known[0] == moved:
        return known[1]
    if len(_sorted) >= _KEPT_TABLES:
        _sorted.clear()
    times = sorted_times(store)
    _sorted[store.root] = (moved, times)
    return times


def wall_ms() -> int:
    """The machine's time (epoch ms): Dagster measures runs by it, whatever clock was injected."""
    return SystemClock().now_ms()


@dataclass(frozen=True)
class Look:
    """A table when it was opened: its ``newest`` snapshot (None: nothing was committed) and the files of its ``schemas`` tell whether it moved since."""

    name: str
    store: TableStore
    refusal: str | None
    newest: Snapshot | None
    schemas: tuple[FileStatus, ...]

    @cached_property
    def card(self) -> TableCard:
        """The table as definitions know it."""
        return card_of(self.name, self.store, self.refusal)

    @property
    def moved(self) -> bool:
        """Whether somebody committed, rolled back, altered, dropped or replaced the table since. Raises CorruptFile."""
        return _schema_files(self.store) != self.schemas or snapshots.latest(self.store) != self.newest


_looks: Final[dict[tuple[object, ...], Look]] = {}
_lock: Final = Lock()


def look_at(warehouse: WarehouseResource, name: str, catalog: Catalog | None = None) -> Look:
    """Return ``db.table`` as it is now, from memory when it did not move.

    A table without snapshots is always opened, and so are those of a catalog in a database, which alone knows what they are called.
    Raises TableNotFound, DatabaseNotFound, CorruptFile, InvalidOption, UnsupportedFeature.
    """
    place = (warehouse.path, warehouse.clock, *sorted(warehouse.catalog_options.items()), name)
    known = _looks.get(place)
    if known is None or known.moved:
        opened = warehouse.catalog() if catalog is None else catalog
        store = opened.table(name).store
        # In this order: what comes between two of these steps is a move for the next look.
        files, newest = _schema_files(store), snapshots.latest(store)
        known = Look(name, store, refusal_of(store), newest, files)
        current = store.schema.id == max(schemas.list_schema_ids(store.file_io, store.root, store.branch), default=-1)
        if newest is not None and current and opened.options.metastore == "filesystem":
            with _lock:
                if len(_looks) >= _KEPT_TABLES:
                    _looks.clear()
                _looks[place] = known
    known.store.kept = Kept()  # what was read of files meanwhile; of thousands of tables that would be too much
    return known


def _schema_files(store: TableStore) -> tuple[FileStatus, ...]:
    return tuple(store.file_io.list_dir(f"{store.metadata_root}/schema"))


def open_table(
    warehouse: WarehouseResource, card: TableCard, policy: Policy, catalog: Catalog | None = None
) -> OpenTable | Decision:
    """Open the table and read its health, from memory when nothing changed; a table that cannot be judged gives the decision that says why.

    ``catalog``: the warehouse's, where many tables are opened.
    """
    refusal: str | None = None
    try:
        look = look_at(warehouse, card.name, catalog)
        schema, refusal = look.store.schema, look.refusal
        same_keys = (schema.partition_keys, schema.primary_keys) == (card.partition_keys, card.primary_keys)
        health = table_health(look.store, look.newest)
    except Exception as error:  # noqa: BLE001  (one table stops no other)
        if refusal is not None:  # a table that is left alone anyway may be one whose keys cannot even be compared
            return Decision(card.name, "", Outcome.DECLINE, Reason.UNSUPPORTED, refusal)
        return unreadable(card, error)
    if card.unreadable or not same_keys:
        text = "its keys or partitions are others now: reload the code location"
        return Decision(card.name, "", Outcome.DECLINE, Reason.RELOAD, text)
    return OpenTable(card, policy, look.store, health, refusal)


def unreadable(card: TableCard, error: Exception) -> Decision:
    """Return the decision about a table that cannot be looked at."""
    return Decision(card.name, "", Outcome.DECLINE, Reason.UNREADABLE, f"{type(error).__name__}: {error}")
