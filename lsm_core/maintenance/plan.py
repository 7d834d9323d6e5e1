"""What maintenance is about to do, as a value: explained, hashed, written as JSON, and applied by that hash alone."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any, Final, TypeAlias

from lsm_core.errors import CorruptFile, PlanStale
from lsm_core.format.snapshot import Snapshot
from lsm_core.metadata.store import TableStore
from lsm_core.storage import check_name

PLAN_VERSION: Final = 1
CODE_VERSION: Final = "dredge-0.1.0/plan-1"
"""Part of every hash: a plan is applied by the code that made it, or not at all."""

EXPIRED_AT: Final = "dredge.expired-at"
"""Snapshot property: epoch ms at which a compaction's plan held its rows to be over (record-level expiry)."""

PLAN_PROPERTY: Final = "dredge.plan"
"""Snapshot property: hash of the plan whose application published it."""

Fact: TypeAlias = str | int | float | bool | None


@dataclass(frozen=True)
class PlannedFile:
    """An input of a compaction: apply requires it, on that level. ``size`` in bytes; ``deletes`` None = unknown."""

    name: str
    level: int
    size: int
    rows: int
    deletes: int | None = 0


@dataclass(frozen=True)
class CompactItem:
    """One bucket's unit: ``inputs`` go to ``output_level`` (append tables: every bin becomes one rolling output).

    ``partition`` is the serialised BinaryRow of the manifest, ``partition_text`` Paimon's path of it ("" when
    unpartitioned). ``upgrades`` name the inputs that only change their level; ``by_file``: each file is rewritten on its own. ``reason`` is one sentence for people,
    ``facts`` its numbers, ``trigger`` the rule (`lsm_core.tree.Trigger`). Bytes are file sizes, rows unmerged.
    ``expire_at_ms``: rows over at this clock (epoch ms) are left out, None: the table's rows do not expire.
    ``order_by``: the columns that a sort compaction sorts by, along ``strategy`` ("order", "zorder", "hilbert").
    """

    partition: bytes
    partition_text: str
    bucket: int
    total_buckets: int
    inputs: tuple[PlannedFile, ...]
    output_level: int
    trigger: str
    reason: str
    facts: Mapping[str, Fact] = field(default_factory=dict)
    bins: tuple[tuple[str, ...], ...] = ()
    upgrades: tuple[str, ...] = ()
    drop_delete: bool = False
    full: bool = False
    by_file: bool = False
    tombstones_dropped: int | None = 0
    runs_before: int = 0
    runs_after: int = 0
    expire_at_ms: int | None = None
    order_by: tuple[str, ...] = ()
    strategy: str = ""

    @property
    def bytes_in(self) -> int:
        """Bytes of the files that are read and rewritten (upgrades cost nothing)."""
        skipped = set(self.upgrades)
        return sum(file.size for file in self.inputs if file.name not in skipped)

    @property
    def rows_in(self) -> int:
        """Rows of the files that are read and rewritten."""
        skipped = set(self.upgrades)
        return sum(file.rows for file in self.inputs if file.name not in skipped)

    def essence(self) -> dict[str, Any]:
        """What the hash covers: inputs with their levels and where they go; explanations are not part of it."""
        return {
            "partition": self.partition.hex(),
            "bucket": self.bucket,
            "inputs": sorted([file.name, file.level] for file in self.inputs),
            "output_level": self.output_level,
            "bins": [list(names) for names in self.bins],
            "upgrades": sorted(self.upgrades),
            "drop_delete": self.drop_delete,
            "by_file": self.by_file,
            **({} if self.expire_at_ms is None else {"expire_at_ms": self.expire_at_ms}),
            **({"order_by": list(self.order_by), "strategy": self.strategy} if self.order_by else {}),
        }


@dataclass(frozen=True)
class ExpireItem:
    """One snapshot that expires; ``time_ms`` is its commit time (epoch ms)."""

    snapshot_id: int
    time_ms: int
    reason: str

    def essence(self) -> dict[str, Any]:
        """What the hash covers."""
        return {"snapshot": self.snapshot_id}


@dataclass(frozen=True)
class DeleteItem:
    """One file that nothing retained needs: ``path`` relative to the table's root, ``size`` in bytes (0 = unknown).

    ``kind`` is data, manifest, manifest-list, index, index-manifest, statistics or changelog; ``trash_id`` names the
    deletion record it comes from (action "trash").
    """

    path: str
    kind: str
    size: int
    reason: str
    trash_id: str = ""

    def essence(self) -> dict[str, Any]:
        """What the hash covers."""
        return {"path": self.path, "trash": self.trash_id}


@dataclass(frozen=True)
class RescaleItem:
    """One partition that is rewritten with ``buckets_after`` buckets; ``inputs`` are all its files, which apply requires.

    ``partition`` is the serialised BinaryRow, ``partition_text`` Paimon's path of it ("" when unpartitioned).
    """

    partition: bytes
    partition_text: str
    buckets_before: int
    buckets_after: int
    inputs: tuple[PlannedFile, ...]
    reason: str

    def essence(self) -> dict[str, Any]:
        """What the hash covers."""
        inputs = sorted([file.name, file.level] for file in self.inputs)
        return {"partition": self.partition.hex(), "buckets": self.buckets_after, "inputs": inputs}


PlanItem: TypeAlias = CompactItem | ExpireItem | DeleteItem | RescaleItem

_KINDS: Final[dict[str, type[CompactItem | ExpireItem | DeleteItem | RescaleItem]]] = {
    "compact": CompactItem,
    "expire": ExpireItem,
    "delete": DeleteItem,
    "rescale": RescaleItem,
}
_NAMES: Final = {kind: name for name, kind in _KINDS.items()}


@dataclass(frozen=True)
class Declined:
    """Something the plan leaves alone, and why: ``subject`` is a bucket ("dt=1/bucket-0"), a file or a snapshot.

    ``reason`` is a short code (`lsm_core.tree.DeclineReason`, "held", "stale", ...), ``text`` one sentence with its
    numbers ("4 sorted runs < 5"), ``facts`` the numbers alone.
    """

    subject: str
    reason: str
    text: str
    facts: Mapping[str, Fact] = field(default_factory=dict)
    partition_text: str = ""
    bucket: int | None = None


@dataclass(frozen=True)
class PlanEstimate:
    """What applying will cost: file bytes read and (at most) written, unmerged rows, files, tasks, seconds on one core."""

    bytes_in: int = 0
    bytes_out: int = 0
    bytes_freed: int = 0
    rows_in: int = 0
    files_in: int = 0
    tasks: int = 0
    seconds: float = 0.0


@dataclass(frozen=True)
class MaintenancePlan:
    """A plan for one table: made from metadata only, applied as it stands (api.md).

    ``base_snapshot`` None = the table is empty. ``options`` are the table options in force, ``arguments`` what the
    caller asked for, ``created_ms`` epoch ms by the table's clock (in the JSON, not in the hash).
    """

    action: str
    table: str
    base_snapshot: int | None
    items: tuple[PlanItem, ...] = ()
    declined: tuple[Declined, ...] = ()
    estimate: PlanEstimate = field(default_factory=PlanEstimate)
    options: Mapping[str, str] = field(default_factory=dict)
    arguments: Mapping[str, Fact] = field(default_factory=dict)
    created_ms: int = 0
    code_version: str = CODE_VERSION

    @cached_property
    def hash(self) -> str:
        """Hex digest over base snapshot, inputs, output levels, options in force and code version."""
        covered = {
            "action": self.action,
            "table": self.table,
            "base": self.base_snapshot,
            "items": [item.essence() for item in self.items],
            "options": dict(self.options),
            "arguments": dict(self.arguments),
            "code": self.code_version,
        }
        text = json.dumps(covered, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:32]

    @property
    def compactions(self) -> tuple[CompactItem, ...]:
        """The items that merge files."""
        return tuple(item for item in self.items if isinstance(item, CompactItem))

    @property
    def expirations(self) -> tuple[ExpireItem, ...]:
        """The items that expire snapshots, in id order."""
        return tuple(item for item in self.items if isinstance(item, ExpireItem))

    @property
    def deletions(self) -> tuple[DeleteItem, ...]:
        """The items that free files."""
        return tuple(item for item in self.items if isinstance(item, DeleteItem))

    @property
    def rescales(self) -> tuple[RescaleItem, ...]:
        """The items that change a partition's number of buckets."""
        return tuple(item for item in self.items if isinstance(item, RescaleItem))

    def to_json(self) -> str:
        """The whole plan, with its hash, as indented JSON."""
        value = {
            "version": PLAN_VERSION,
            "hash": self.hash,
            "action": self.action,
            "table": self.table,
            "base_snapshot": self.base_snapshot,
            "created_ms": self.created_ms,
            "code_version": self.code_version,
            "arguments": dict(self.arguments),
            "estimate": asdict(self.estimate),
            "items": [_item_object(item) for item in self.items],
            "declined": [asdict(item) for item in self.declined],
            "options": dict(self.options),
        }
        return json.dumps(value, indent=2, ensure_ascii=False)

    @staticmethod
    def from_json(text: str) -> MaintenancePlan:
        """Read a plan back. Raises CorruptFile when it is no plan, PlanStale when its hash does not fit its content."""
        try:
            value = json.loads(text)
            if value["version"] != PLAN_VERSION:
                raise PlanStale(f"written by plan version {value['version']}, this is {PLAN_VERSION}")
            plan = MaintenancePlan(
                action=str(value["action"]),
                table=str(value["table"]),
                base_snapshot=value["base_snapshot"],
                items=tuple(_item(item) for item in value["items"]),
                declined=tuple(Declined(**item) for item in value["declined"]),
                estimate=PlanEstimate(**value["estimate"]),
                options=dict(value["options"]),
                arguments=dict(value["arguments"]),
                created_ms=int(value["created_ms"]),
                code_version=str(value["code_version"]),
            )
            expected = value["hash"]
        except (KeyError, TypeError, ValueError) as error:
            raise CorruptFile("<maintenance plan>", f"unreadable: {error!r}") from error
        if plan.hash != expected:
            raise PlanStale(f"its content was changed after planning (hash {expected} became {plan.hash})")
        return plan


def save_plan(store: TableStore, plan: MaintenancePlan) -> str:
    """Keep ``plan`` under `<table>/dredge/plans/`, so that another process can apply it by its hash; returns the path."""
    path = _plan_path(store, plan.hash)
    store.file_io.write_exclusive(path, plan.to_json().encode())
    return path


def load_plan(store: TableStore, plan_hash: str) -> MaintenancePlan:
    """The saved plan of that hash (or of the only hash that starts so). Raises PlanStale, CorruptFile, InvalidData."""
    folder = _plan_path(store, "x").rpartition("/")[0]
    names = [
        s.name for s in store.file_io.list_dir(folder) if s.name.startswith(check_name(plan_hash)) and not s.is_dir
    ]
    if len(names) != 1:
        raise PlanStale(
            f"table {store.name} has {len(names) or 'no'} saved plan{'s'[: len(names)]} with hash {plan_hash}"
        )
    plan = MaintenancePlan.from_json(store.file_io.read_bytes(f"{folder}/{names[0]}").decode())
    if f"{plan.hash}.json" != names[0]:
        raise PlanStale(f"the file {names[0]} holds plan {plan.hash}")
    return plan


def _plan_path(store: TableStore, plan_hash: str) -> str:
    return f"{store.root}/dredge/plans/{check_name(plan_hash)}.json"


def expiry_clock(snapshot: Snapshot) -> int:
    """Epoch ms at which the compaction that ``snapshot`` published let rows expire; Java's, and that of a writer which
    compacts by itself, is taken for the commit's time.
    """
    given = (snapshot.properties or {}).get(EXPIRED_AT, "")
    return int(given) if given.isascii() and given.isdigit() else snapshot.time_millis


def bucket_name(partition_text: str, bucket: int) -> str:
    """How plans, reports and ledgers name a bucket: "dt=1/bucket-0"."""
    return f"{partition_text}/bucket-{bucket}" if partition_text else f"bucket-{bucket}"


def facts_of(values: Mapping[str, object]) -> dict[str, Fact]:
    """Facts as JSON can hold them: anything that is no plain value becomes its text."""
    return {
        name: value if isinstance(value, (str, int, float, bool)) or value is None else str(value)
        for name, value in values.items()
    }


def _item_object(item: PlanItem) -> dict[str, Any]:
    value = asdict(item)
    if isinstance(item, CompactItem | RescaleItem):
        value["partition"] = item.partition.hex()
    return {"item": _NAMES[type(item)], **value}


def _item(value: Mapping[str, Any]) -> PlanItem:
    fields = dict(value)
    kind = _KINDS[fields.pop("item")]
    if kind in (CompactItem, RescaleItem):
        fields["partition"] = bytes.fromhex(fields["partition"])
        fields["inputs"] = tuple(PlannedFile(**file) for file in fields["inputs"])
    if kind is CompactItem:
        fields["bins"] = _names(fields["bins"])
        fields["upgrades"] = tuple(fields["upgrades"])
        fields["order_by"] = tuple(fields["order_by"])
    return kind(**fields)


def _names(bins: Sequence[Sequence[str]]) -> tuple[tuple[str, ...], ...]:
    return tuple(tuple(names) for names in bins)
