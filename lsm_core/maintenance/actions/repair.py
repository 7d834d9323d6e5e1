"""Repair of a table's sequence of snapshots without losing a row or a file.

**Hints.** The hint files LATEST and EARLIEST are shortcuts. Java trusts LATEST if the snapshot after it does not exist.
So with a wrong LATEST, Java reads an old snapshot, or none, and writes a snapshot id a second time.

**Gaps.** If the end of an expiry (the oldest id plus `snapshot.expire.limit`, for example) is in a gap of the ids, Java
silently expires nothing. The next expiry does the same, so snapshots and their files stay for ever. The repair puts the
missing snapshots back: from a tag with that id, or else as a bridge. A bridge is a new snapshot file. Its content is
the content on which the snapshot after the gap was built. Its delta has all changes after the previous snapshot.

**Damaged snapshots.** A damaged snapshot ends the expiry in every engine. The snapshot file is damaged, or a manifest
list, manifest or index manifest that the snapshot references is damaged or lost. The repair moves the snapshot file
away, which leaves a gap to bridge. The newest snapshot is never moved away, because that is a rollback, which a user
must request.
"""

from __future__ import annotations

import copy
import hashlib
import shlex
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Any, ClassVar, Final

import pyarrow.compute as pc

from lsm_core.commit.attempt import RecordingFileIO, remove
from lsm_core.format.manifest import DELETE, VECTORS_INDEX
from lsm_core.format.snapshot import BATCH_COMMIT_IDENTIFIER, CommitKind, Snapshot
from lsm_core.maintenance.action import ActionWork, ApplyOutcome, Declined, Fact, MaintenancePlan, PlanItem, Report
from lsm_core.maintenance.damage import Damage, Examination, examine
from lsm_core.metadata import hints, manifests, snapshots, tags
from lsm_core.metadata.history_check import wrong_hints
from lsm_core.metadata.paimon_version import carried_writer
from lsm_core.metadata.store import TableStore

_USER: Final = "dredge-repair"
DAMAGED: Final = "unreadable"
"""Reason of the damaged files that a repair does not mend."""
_TAG: Final = "tag "
_DAMAGED: Final = "dredge/damaged"
"""Folder of a table, or of its branch, to which damaged snapshots are moved; nothing reads them."""
BRIDGE_PROPERTY: Final = "dredge.bridge"
"""Property of a snapshot that a repair wrote: the ids of the gap in which the snapshot was missing, "4..5"."""


@dataclass(frozen=True)
class HintItem(PlanItem):
    """Hint file to correct.

    Attributes:
        folder: folder of the hint file: snapshot or changelog.
        name: name of the hint file.
        found: current text of the hint file, "" if the file is missing.
        wanted: correct id, None to delete the hint file.
        reason: why the hint is corrected.
    """

    item_kind: ClassVar[str] = "hint"
    title: ClassVar[str] = "would set right"
    columns: ClassVar[tuple[str, ...]] = ("hint", "says", "then", "why")

    folder: str
    name: str
    found: str
    wanted: int | None
    reason: str

    def cells(self) -> tuple[Any, ...]:
        """Return the item's cells of a printed plan: hint file, current text, corrected text, and reason."""
        return (
            f"{self.folder}/{self.name}",
            self.found or "-",
            "-" if self.wanted is None else self.wanted,
            self.reason,
        )


@dataclass(frozen=True)
class BridgeItem(PlanItem):
    """Missing snapshot (a gap in the snapshot ids) to put back.

    Attributes:
        snapshot_id: id of the missing snapshot.
        before: id of the snapshot before the gap.
        after: id of the snapshot after the gap.
        source: "tag NAME" if the snapshot is copied from a tag, or "bridge" if a new snapshot is built between the
            neighbours.
    """

    item_kind: ClassVar[str] = "bridge"
    title: ClassVar[str] = "would put back"
    columns: ClassVar[tuple[str, ...]] = ("snapshot", "gap", "from")

    snapshot_id: int
    before: int
    after: int
    source: str

    def cells(self) -> tuple[Any, ...]:
        """Return the item's cells of a printed plan: the snapshot's id, its gap and the source of its file."""
        origin = f"a bridge: what snapshot {self.after} was built on" if self.source == "bridge" else self.source
        return (self.snapshot_id, f"between {self.before} and {self.after}", origin)


@dataclass(frozen=True)
class SetAsideItem(PlanItem):
    """Damaged snapshot, whose file is moved to the folder `dredge/damaged` of the table.

    Attributes:
        snapshot_id: id of the damaged snapshot.
        reason: the damaged file and its error.
    """

    item_kind: ClassVar[str] = "set_aside"
    title: ClassVar[str] = "would set aside"
    columns: ClassVar[tuple[str, ...]] = ("snapshot", "why")

    snapshot_id: int
    reason: str

    def cells(self) -> tuple[Any, ...]:
        """Return the item's cells of a printed plan: the snapshot's id and the reason."""
        return (self.snapshot_id, self.reason)


@dataclass(frozen=True)
class RepairReport(Report):
    """Report of a repair.

    Attributes:
        plan_hash: hash of the plan.
        base_snapshot: id of the newest snapshot at planning.
        bridged: ids of the missing snapshots that were put back, so that the ids have no gap.
        hints: names of the corrected hint files.
        declined: declined entries of the gaps that were not bridged.
        set_aside: ids of the damaged snapshots whose files were moved away.
        failed: damaged files that remain, with advice for the user.
    """

    undone: ClassVar[str] = "damaged metadata files remain"

    plan_hash: str
    base_snapshot: int | None
    bridged: tuple[int, ...] = ()
    hints: tuple[str, ...] = ()
    declined: tuple[Declined, ...] = ()
    set_aside: tuple[int, ...] = ()
    failed: tuple[Declined, ...] = ()

    @property
    def changed(self) -> bool:
        """Whether anything was repaired."""
        return bool(self.bridged or self.hints or self.set_aside)

    def lines(self, table: str) -> list[str]:
        """Return one line per kind of repair; if there is nothing to repair, name the commands for data files."""
        lines = []
        if self.set_aside:
            lines.append(f"damaged snapshots moved to {_DAMAGED}: {', '.join(map(str, self.set_aside))}")
        if self.bridged:
            lines.append(f"snapshots put back: {', '.join(map(str, self.bridged))}; expiry goes on in every engine")
        if self.hints:
            lines.append(f"hints set right: {', '.join(self.hints)}")
        remaining = (*self.declined, *self.failed)
        if remaining:
            lines.append(f"the history of {table} is not whole: {'; '.join(item.text for item in remaining)}")
        if lines:
            return lines
        every = "every snapshot, tag, manifest list and manifest was read, and every consumer"
        command = f"dredge check {shlex.quote(table)} --deep"
        return [
            f"the history of {table} is whole: {every}",
            f"a repair reads no data file: `{command}` lists damaged and lost ones, with remedies",
        ]


def plan_repair(store: TableStore, now_ms: int | None = None) -> MaintenancePlan:
    """Plan to correct hints, set damaged snapshots aside, and put missing snapshots back into gaps of the ids.

    All metadata is read (`lsm_core.maintenance.damage`), and no data file.

    A snapshot is damaged if its rows cannot be read, or if its manifests contradict its neighbours. If the newest
    snapshot is undamaged, a damaged snapshot is moved away in three cases: the gap can be filled by a new snapshot, all
    older snapshots are damaged too, or the snapshot file itself is damaged.

    Damage of the newest snapshot, of tags, changelogs and consumers, and of files that are not needed to read rows is
    declined, with advice for the user. A gap across which deletion vectors changed is declined too, because no file has
    the vectors of the missing snapshots.

    Args:
        store: the table.
        now_ms: time of planning (epoch ms), None for the table's clock.
    """
    store.require_own_snapshots("a repair")
    examination = examine(store)
    ids = list(examination.ids)
    plan = MaintenancePlan.begin("repair", store, ids[-1] if ids else None, {}, now_ms)
    damages = examination.unreadable()
    items: list[PlanItem] = []
    declined: list[Declined] = []
    aside: set[int] = set()
    bridges: list[PlanItem] = []
    if not ids or ids[-1] not in damages:
        movable = {number for number, damage in damages.items() if not damage.is_unknown}
        # the tag of each snapshot whose rows can be read; of several the first by name
        tagged = {number: name for name, number in sorted(examination.whole_tags.items(), reverse=True)}
        whole = [number for number in ids if number not in movable]
        aside = {number for number in movable if not whole or number < whole[0]}
        for first, last in snapshots.gaps(whole):
            missing = range(first, last + 1)
            sources = [f"{_TAG}{tagged[number]}" if number in tagged else "bridge" for number in missing]
            why = _why_not(store, first - 1, last + 1, damages) if "bridge" in sources else ""
            if why:
                facts = {"before": first - 1, "after": last + 1}
                declined.append(Declined(f"snapshots {first}..{last}", "gap", why, facts))
                # A snapshot whose file was moved away is a gap: an expiry passes gaps, but stops at damaged snapshots.
                aside |= {number for number in movable & set(missing) if damages[number].kind == "snapshot"}
                continue
            aside |= movable & set(missing)
            bridges += [
                BridgeItem(number, first - 1, last + 1, source) for number, source in zip(missing, sources, strict=True)
            ]
    items += [SetAsideItem(number, f"{damages[number].path}: {damages[number].reason}") for number in sorted(aside)]
    items += bridges
    items += [HintItem(**vars(hint)) for hint in wrong_hints(store)]
    declined += _remaining(store, examination, aside)
    return replace(plan, items=tuple(items), declined=tuple(declined))


def _remaining(store: TableStore, examination: Examination, aside: AbstractSet[int]) -> Iterator[Declined]:
    """Yield a declined entry, with advice, for each damaged file that moving snapshots away does not repair.

    ``aside`` are the ids of the snapshots that the plan moves away.
    """
    damages = examination.unreadable()
    for damage in examination.damages:
        holding = [number for number in damage.snapshots if number not in aside]
        if not holding and not damage.holders:
            continue
        what = f"{damage.kind} {PurePosixPath(damage.path).name}"
        if damage.kind == "snapshot":
            what = f"snapshot {holding[0]}"
        steps = list(_steps(store, examination, damages, damage, holding))
        text = f"{damage.text()}: put the file back from a copy{''.join(f'; {step}' for step in steps)}"
        facts: dict[str, Fact] = {"file": damage.path, **({"snapshot": holding[-1]} if holding else {})}
        yield Declined(what, DAMAGED, text, facts)


def _steps(
    store: TableStore,
    examination: Examination,
    damages: Mapping[int, Damage],
    damage: Damage,
    holding: Sequence[int],
) -> Iterator[str]:
    """Yield the steps, as text, that a user can take about a damaged file of which no copy exists.

    Args:
        store: the table.
        examination: result of examining the whole table.
        damages: one damage of each snapshot whose rows cannot be read or are wrong, by snapshot id.
        damage: the damaged file.
        holding: ids of the remaining snapshots that need the file.
    """
    name, newest = shlex.quote(store.name), examination.ids[-1] if examination.ids else None
    if damage.is_unknown:
        yield "or read the table with a newer version of Dredge"
    elif damage.hides_rows and newest in holding:
        whole = [number for number in examination.ids if number not in damages]
        if damage.kind == "snapshot":
            if whole and len(examination.ids) > 1:
                yield f"moved away, the table is at snapshot {examination.ids[-2]} again"
            return
        if damage.kind == "manifest":
            first = "" if damage.is_missing else "move it away, then "
            yield f"or {first}`dredge remove-unexisting-manifests {name}` goes on without its rows"
        if whole:
            yield (
                f"or `dredge rollback {name} --snapshot {whole[-1]}` goes back to the newest whole snapshot and drops "
                f"what was committed since"
            )
        elif examination.whole_tags:
            tag = max(examination.whole_tags.items(), key=lambda entry: entry[1])[0]
            yield (
                f"or `dredge rollback {name} --tag {shlex.quote(tag)}` goes back to a whole tag and drops what was "
                "committed since"
            )
    elif damage.hides_rows and holding and newest in damages:
        yield "it is set aside once the newest snapshot is whole"
    elif holding and damage.kind == "statistics":
        yield f"or `dredge analyze {name}` writes new statistics, and older ones expire with their snapshots"
    elif holding:
        yield f"or `dredge expire {name}` drops the snapshots up to {holding[-1]} once newer ones are enough"
    if damage.kind in {"tag", "changelog"}:
        yield f"or move it away, and the table goes on without this {damage.kind}"
    elif damage.kind == "consumer":
        consumer_id = shlex.quote(damage.holders[0].removeprefix("consumer "))
        yield (
            f"or `dredge consumers delete {name} {consumer_id}`: its stream must then choose its start position again"
        )
    elif damage.holders:
        yield f"or delete {' and '.join(damage.holders)}, if it is not needed"


def _why_not(store: TableStore, before: int, after: int, damages: Mapping[int, Damage]) -> str:
    """Return why the id gap between snapshots ``before`` and ``after`` cannot be filled, or "" if it can.

    ``damages`` has one damage of each snapshot whose rows cannot be read or are wrong, by snapshot id.
    """
    for number in (before, after):
        if number in damages:
            return f"snapshot {number} beside it cannot be read: {damages[number].reason}"
    left, right = (_vectors(store, snapshots.read(store, number)) for number in (before, after))
    if left != right:
        return (
            f"deletion vectors changed between snapshots {before} and {after}, and those of the missing snapshots are "
            f"in no file: expire the snapshots up to {before} (`dredge expire` gets past a gap)"
        )
    delta = manifests.delta_entries(store, snapshots.read(store, after))
    for row in (
        delta.filter(pc.equal(delta.column("kind"), DELETE)).select(_PLACE).to_pylist()
    ):  # the files of one commit
        path = store.data_path(row["partition"], row["bucket"], row["file_name"], row["external_path"])
        if not store.file_io.exists(path):
            return f"{path}, which snapshot {after} replaced, is deleted already: expire the snapshots up to {before}"
    return ""


_PLACE: Final = ["partition", "bucket", "file_name", "external_path"]


def _vectors(store: TableStore, snapshot: Snapshot) -> set[str]:
    return {entry.file_name for entry in manifests.index_entries(store, snapshot) if entry.index_type == VECTORS_INDEX}


def apply_repair(store: TableStore, plan: MaintenancePlan) -> ApplyOutcome:
    """Move damaged snapshots away, put missing snapshots back, oldest first, then correct the hints.

    A missing snapshot that exists again is not overwritten. After an interrupted repair every written snapshot is
    complete, and the next repair fills the remaining gap.

    Args:
        store: the table.
        plan: plan to apply.

    Returns:
        ApplyOutcome with a RepairReport.

    Raises:
        CorruptFile: metadata cannot be read.
    """
    movable = _still_damaged(store, plan)
    aside = [number for number in movable if _set_aside(store, number)]
    bridged = [item.snapshot_id for item in plan.items_of(BridgeItem) if _put_back(store, item)]
    if aside and (ids := snapshots.list_ids(store)) and ids[0] > aside[0]:
        snapshots.write_earliest_hint(store, ids[0])
    corrected = []
    planned = {(item.folder, item.name) for item in plan.items_of(HintItem)}
    for item in wrong_hints(store):  # read again, because commits move LATEST
        if (item.folder, item.name) not in planned:
            continue
        place = f"{store.metadata_root}/{item.folder}"
        if item.wanted is None:
            store.delete(f"{place}/{item.name}")
        elif not hints.write_hint(store.file_io, place, item.name, item.wanted):
            continue
        corrected.append(f"{item.folder}/{item.name}")
    lines = [{"event": "set aside", "snapshot": number} for number in aside]
    lines += [{"event": "bridged", "snapshot": number} for number in bridged]
    report = RepairReport(
        plan.hash,
        plan.base_snapshot,
        tuple(bridged),
        tuple(corrected),
        tuple(item for item in plan.declined if item.reason != DAMAGED),
        tuple(aside),
        tuple(item for item in plan.declined if item.reason == DAMAGED),
    )
    return ApplyOutcome(report, [*lines, *({"event": "hint", "file": name} for name in corrected)])


def repair_fits(store: TableStore, plan: MaintenancePlan) -> bool:
    """Return whether a planned snapshot is still damaged or missing, or a planned hint is still wrong.

    Args:
        store: the table.
        plan: plan to compare with the table.
    """
    missing = bool(_still_damaged(store, plan)) or any(
        not snapshots.exists(store, item.snapshot_id) for item in plan.items_of(BridgeItem)
    )
    wrong = {(item.folder, item.name) for item in wrong_hints(store)}
    return missing or any((item.folder, item.name) in wrong for item in plan.items_of(HintItem))


def _still_damaged(store: TableStore, plan: MaintenancePlan) -> list[int]:
    """Return the ids of the planned snapshots to move away that are still damaged, ascending.

    While the newest snapshot is damaged too, the result is empty: nothing is moved away until the user has repaired the
    newest snapshot or rolled back.
    """
    planned = [item.snapshot_id for item in plan.items_of(SetAsideItem)]
    if not planned:
        return []
    examination = examine(store)
    damages = examination.unreadable()
    if examination.ids[-1] in damages:
        return []
    return [number for number in planned if number in damages and not damages[number].is_unknown]


def _set_aside(store: TableStore, number: int) -> bool:
    """Copy a snapshot file to `dredge/damaged`, then delete the file; return False if the file no longer exists."""
    path = store.snapshot_path(number)
    try:
        data = store.file_io.read_bytes(path)
    except FileNotFoundError:
        return False
    digest = hashlib.sha256(data).hexdigest()[:16]
    store.file_io.mkdirs(f"{store.metadata_root}/{_DAMAGED}")
    store.file_io.write_exclusive(f"{store.metadata_root}/{_DAMAGED}/{PurePosixPath(path).name}-{digest}", data)
    return bool(store.delete(path))


def _put_back(store: TableStore, item: BridgeItem) -> bool:
    """Write one missing snapshot.

    Returns False if the snapshot exists already, or if a snapshot next to the gap no longer exists (expired, rolled
    back).
    """
    before, after = snapshots.try_read(store, item.snapshot_id - 1), snapshots.try_read(store, item.after)
    if before is None or after is None or snapshots.exists(store, item.snapshot_id):
        return False
    path = store.snapshot_path(item.snapshot_id)
    if item.source.startswith(_TAG):
        tag = tags.try_read(store, item.source.removeprefix(_TAG))
        if tag is not None and tag.snapshot.id == item.snapshot_id:
            return bool(store.file_io.write_exclusive(path, tag.snapshot.to_json()))
    recorded = RecordingFileIO(store.file_io)
    drafts = copy.copy(store)
    drafts.file_io = recorded
    try:
        bridge = _bridge(drafts, before, after, item)
        data = bridge.to_json()
    except BaseException:
        remove(store.file_io, recorded.take())
        raise
    if store.file_io.write_exclusive(path, data):
        return True
    if store.file_io.read_bytes(path) != data:
        remove(store.file_io, recorded.take())  # another process put the snapshot back: these files are unused
    return False


def _bridge(store: TableStore, before: Snapshot, after: Snapshot, item: BridgeItem) -> Snapshot:
    """Return the snapshot to write into a gap: it follows ``before`` and has the content that ``after`` was built on.

    The manifests of this snapshot are written through ``store``.
    """
    old, new = manifests.data_manifests(store, before), manifests.base_list(store, after)
    changed = manifests.difference(store, old, new)
    base = manifests.write_list(store, old)
    delta = manifests.write_list(store, manifests.write_manifests(store, changed))
    total = after.total_record_count - after.delta_record_count
    return Snapshot(
        id=item.snapshot_id,
        schema_id=after.schema_id,
        base_manifest_list=base[0],
        base_manifest_list_size=base[1],
        delta_manifest_list=delta[0],
        delta_manifest_list_size=delta[1],
        index_manifest=after.index_manifest,
        commit_user=_USER,
        commit_identifier=BATCH_COMMIT_IDENTIFIER,
        # Streams must not take the bridge for rows of a writer.
        commit_kind=CommitKind.OVERWRITE if changed.num_rows else CommitKind.COMPACT,
        time_millis=max(before.time_millis, after.time_millis - 1),
        total_record_count=total,
        delta_record_count=total - before.total_record_count,
        changelog_record_count=0,
        watermark=before.watermark,
        properties={BRIDGE_PROPERTY: f"{item.before + 1}..{item.after - 1}"},
        next_row_id=after.next_row_id,
        others=after.others,
        writer_version=carried_writer(after),
    )


WORK: Final = ActionWork(
    plan_repair, apply_repair, RepairReport, (SetAsideItem, BridgeItem, HintItem), fits=repair_fits
)
