"""A sensor's view of one table: opened fresh on every tick, its health read again only when its newest snapshot is another."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final

from lsm_core.errors import DredgeError
from lsm_core.metadata import snapshots
from lsm_core.metadata.store import TableStore
from orchestration.model import Look, TableCard
from orchestration.partitions import look_at
from orchestration.policies import Policy
from orchestration.resources.warehouse import WarehouseResource, refusal_of

_KEPT_TABLES: Final = 256
_KEPT_BUCKETS: Final = 100_000


@dataclass(frozen=True)
class TableView:
    """What a tick knows of a table. Without a ``store`` there is ``trouble``; ``refusal`` says why files are left alone."""

    card: TableCard
    policy: Policy
    store: TableStore | None = None
    look: Look | None = None
    previous: Look | None = None
    refusal: str | None = None
    trouble: str | None = None

    @property
    def name(self) -> str:
        """The table."""
        return self.card.name

    @property
    def reshaped(self) -> bool:
        """Whether its keys are others than those for which jobs and partitions were made."""
        if self.store is None:
            return False
        schema, card = self.store.schema, self.card
        now, then = (schema.partition_keys, schema.primary_keys), (card.partition_keys, card.primary_keys)
        return card.unreadable or now != then

    @property
    def changed(self) -> bool:
        """Whether the newest snapshot is another one than this process saw last."""
        return self.look is not None and (self.previous is None or self.previous.snapshot != self.look.snapshot)


@dataclass
class Memory:
    """The looks of one sensor in one process: a cache, never the truth; bounded in tables and buckets."""

    looks: OrderedDict[str, tuple[tuple[object, ...], Look]] = field(default_factory=OrderedDict)

    def recall(self, table: str, identity: tuple[object, ...]) -> Look | None:
        """Return the look at exactly this state of the table, if it is still here."""
        found = self.looks.get(table)
        return found[1] if found is not None and found[0] == identity else None

    def last(self, table: str) -> Look | None:
        """Return the look before this one, whatever it saw."""
        found = self.looks.get(table)
        return found[1] if found is not None else None

    def keep(self, table: str, identity: tuple[object, ...], look: Look) -> None:
        """Remember a look, forgetting the oldest ones."""
        self.looks[table] = (identity, look)
        self.looks.move_to_end(table)
        while len(self.looks) > 1 and (len(self.looks) > _KEPT_TABLES or self._buckets() > _KEPT_BUCKETS):
            self.looks.popitem(last=False)

    def _buckets(self) -> int:
        return sum(len(look.buckets) for _, look in self.looks.values())


def view_table(warehouse: WarehouseResource, card: TableCard, policy: Policy, memory: Memory) -> TableView:
    """Open the table and look at its metadata. Never raises for what is wrong with the table: that is the view's text."""
    refusal: str | None = None
    store: TableStore | None = None
    try:
        store = warehouse.store(card.name)
        refusal = refusal_of(store)
        previous = memory.last(card.name)
        identity = _identity(store)
        look = memory.recall(card.name, identity) or look_at(store)
        memory.keep(card.name, identity, look)
        return TableView(card, policy, store=store, look=look, previous=previous, refusal=refusal)
    except (DredgeError, OSError, ValueError) as error:
        if refusal is not None:  # a table that is left alone anyway may be one whose keys cannot even be compared
            return TableView(card, policy, store=store, refusal=refusal)
        return TableView(card, policy, trouble=f"{type(error).__name__}: {error}")


def _identity(store: TableStore) -> tuple[object, ...]:
    """What a look depends on: the snapshot, the options, and the hour where rules depend on time."""
    latest = snapshots.latest(store)
    timed = bool(store.options.optimization_interval) or store.options.offpeak_start >= 0
    minute = store.clock.now_ms() // 60_000 if timed else 0
    return (
        latest.id if latest else None,
        latest.base_manifest_list if latest else None,
        store.schema.id,
        tuple(sorted(store.schema.options.items())),
        minute,
    )
