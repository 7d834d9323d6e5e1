"""Remedies for damaged or lost files and broken trees: planned actions that lead back to a healthy table."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.arrays import arrow_array, one_array
from lsm_core.errors import DredgeError
from lsm_core.format.manifest import ADD, DELETE
from lsm_core.format.snapshot import CommitKind, Snapshot
from lsm_core.maintenance.action import find_action, plan_maintenance
from lsm_core.maintenance.ledger import read_ledger
from lsm_core.metadata import manifests, snapshots
from lsm_core.metadata.store import TableStore

_LEDGER_ENTRIES: Final = 200
_MOST_SNAPSHOTS: Final = 1_000
"""Number of newest snapshots that are searched for the commit that added or removed a file."""
_MOST_FILES: Final = 20
_REASON_CHARACTERS: Final = 300
"""Most characters of a refusal in a text."""


@dataclass(frozen=True)
class Remedy:
    """Action that repairs a table.

    Attributes:
        action: name of the action, which is also the name of its Dagster job.
        arguments: arguments of the action.
        flags: the arguments on the command line, after the name of the table.
        loss: text on the commits or rows that the action loses, "" if it loses none.
    """

    action: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    flags: tuple[str, ...] = ()
    loss: str = ""

    def command(self, table: str) -> str:
        """Return the command line without the warehouse.

        Args:
            table: full name of the table.
        """
        verb = find_action(self.action).verb or self.action.replace("_", "-")
        return " ".join(["dredge", verb, *map(shlex.quote, (table, *self.flags))])

    def is_possible(self, store: TableStore) -> bool:
        """Return whether the plan of the action has work to do.

        Raises:
            DredgeError: a rule refuses the plan, or metadata cannot be read.
        """
        return bool(plan_maintenance(store, self.action, **self.arguments).items)


_REINDEX: Final = Remedy("rewrite_file_index")


def undo_of(run_id: str) -> Remedy:
    """Return the undo of a compaction.

    Args:
        run_id: run of the compaction in the ledger.
    """
    return Remedy("undo", {"run_id": run_id, "allow_changes": True}, (run_id, "--allow-changes"))


def returns_to(snapshot_id: int, commits: int) -> Iterator[Remedy]:
    """Yield the actions that return a table to a snapshot, the one that keeps the history first.

    Args:
        snapshot_id: id of the snapshot.
        commits: number of commits after the snapshot whose rows are lost.
    """
    arguments, flags = {"snapshot_id": snapshot_id}, ("--snapshot", str(snapshot_id))
    lost = f"the rows of {commits:,} later {'commit' if commits == 1 else 'commits'} must be written again"
    for action in ("rollback_as_latest", "rollback"):
        yield Remedy(action, arguments, flags, lost if commits else "")


def first_possible(store: TableStore, remedies: Iterable[Remedy]) -> tuple[Remedy | None, str]:
    """Return the first remedy whose plan has work to do (None for no such remedy), and the first refusal before it.

    Args:
        store: the table.
        remedies: the remedies in order of preference.

    Returns:
        The remedy or None, and the error of the first remedy before it that a rule refused ("" for none).
    """
    refusal = ""
    for remedy in remedies:
        try:
            if remedy.is_possible(store):
                return remedy, refusal
        except (DredgeError, OSError) as error:
            refusal = refusal or str(error)
    return None, refusal


def find_file_remedies(store: TableStore, names: Sequence[str]) -> tuple[Remedy, ...]:
    """Return the remedies for damaged or lost data, changelog and index files of which no copy exists.

    An index file beside a data file is written again. If the newest snapshot needs another file, the remedy undoes the
    compaction that wrote the file, returns the table to the snapshot before the file, or removes lost files from the
    table. If only older snapshots need the files, the remedy expires these snapshots. After an error the result is
    empty.

    Args:
        store: the table.
        names: names of the files; the first 20 count.

    Returns:
        Remedies whose plans are possible now, the one that keeps most first.
    """
    chosen = set(names[:_MOST_FILES])
    try:
        newest = snapshots.latest(store)
        if newest is None or not chosen:
            return ()
        beside = _side_files_of(store, newest, chosen)
        if beside and first_possible(store, [_REINDEX])[0] is not None:
            return (_REINDEX, *find_file_remedies(store, [name for name in names if name not in beside]))
        live = _data_files_of(store, newest, chosen) | _index_files_of(store, newest, chosen)
        return tuple(_find_live(store, newest, live) if live else _find_expiry(store, newest, chosen))
    except (DredgeError, OSError):
        return ()


def find_tree_remedies(
    store: TableStore, newest: Snapshot, is_valid: Callable[[Snapshot], bool]
) -> tuple[tuple[Remedy, ...], str]:
    """Return the remedy for a broken LSM tree of the newest snapshot.

    The remedy undoes the compaction that broke the tree, or returns the table to the snapshot before that commit. A
    compaction is no remedy: on a broken tree its output cannot be compared with what readers return, because readers
    may return several versions of a key.

    Args:
        store: the table.
        newest: the newest snapshot, whose tree is broken.
        is_valid: whether the tree of a snapshot is valid; it may raise a DredgeError.

    Returns:
        The remedy whose plan is possible now, if there is one, and a text on the commit that broke the tree, or on why
        there is no remedy.
    """
    try:
        ids = [number for number in snapshots.list_ids(store) if number < newest.id][-_MOST_SNAPSHOTS:]
        valid = find_last_valid(ids, lambda number: _is_valid_snapshot(store, number, is_valid))
        if valid is None:
            return (), _no_remedy("no older snapshot with a valid tree exists")
        good, number = ids[valid], [*ids, newest.id][valid + 1]
        breaking = newest if number == newest.id else snapshots.read(store, number)
        runs = {entry.snapshot_id: entry.run_id for entry in read_ledger(store, _LEDGER_ENTRIES, heads=True)}
        run_id = runs.get(number) if breaking.commit_kind is CommitKind.COMPACT else None
        candidates = [
            *([undo_of(run_id)] if run_id else []),
            *returns_to(good, _count_appends(store, number, newest.id)),
        ]
        remedy, refusal = first_possible(store, candidates)
    except (DredgeError, OSError) as error:
        return (), _no_remedy(str(error))
    broken_by = f"snapshot {number} ({breaking.commit_kind.value}) broke the tree"
    return ((), f"{broken_by}; {_no_remedy(refusal)}") if remedy is None else ((remedy,), broken_by)


def _no_remedy(reason: str) -> str:
    return (
        f"no action repairs it ({reason[:_REASON_CHARACTERS]}): restore the table from a backup, or write its rows to "
        "a new table and compare them with their source"
    )


def find_last_valid(ids: Sequence[int], is_valid: Callable[[int], bool]) -> int | None:
    """Return the index of a valid snapshot whose successor is not valid, None if no valid snapshot is met.

    The distance to the newest snapshot is doubled until a valid snapshot is met, and then halved, because each answer
    reads all manifests of a snapshot.

    Args:
        ids: ids of snapshots, ascending; the snapshot after the last one is not valid.
        is_valid: whether a snapshot is valid.
    """
    broken, distance = len(ids), 1
    while broken:
        index = max(broken - distance, 0)
        if is_valid(ids[index]):
            while broken - index > 1:
                middle = (broken + index) // 2
                if is_valid(ids[middle]):
                    index = middle
                else:
                    broken = middle
            return index
        broken, distance = index, 2 * distance
    return None


def _is_valid_snapshot(store: TableStore, number: int, is_valid: Callable[[Snapshot], bool]) -> bool:
    try:
        return is_valid(snapshots.read(store, number))
    except DredgeError:  # expired meanwhile, or its metadata is damaged
        return False


def _find_live(store: TableStore, newest: Snapshot, names: set[str]) -> Iterator[Remedy]:
    """Yield the remedies for files that the newest snapshot needs."""
    added_by = _find_adding(store, newest, names)
    runs = {entry.snapshot_id: entry.run_id for entry in read_ledger(store, _LEDGER_ENTRIES, heads=True)}
    adding = sorted({snapshot.id for snapshot in added_by.values()}, reverse=True)
    unsolved = set(names) - set(added_by)
    for number in adding:
        (snapshot,) = {added.id: added for added in added_by.values() if added.id == number}.values()
        run_id = runs.get(number) if snapshot.commit_kind is CommitKind.COMPACT else None
        undo = None if run_id is None else first_possible(store, [undo_of(run_id)])[0]
        if undo is None:
            unsolved |= {name for name, added in added_by.items() if added.id == number}
        else:
            yield undo
    if unsolved and adding:
        commits = _count_appends(store, adding[-1], newest.id)
        back = first_possible(store, returns_to(adding[-1] - 1, commits))[0]
        if back is not None:
            yield back
    if unsolved:
        removal = first_possible(store, [Remedy("remove_unexisting_files", loss="the rows of lost files are given up")])
        if removal[0] is not None:
            yield removal[0]


def _find_expiry(store: TableStore, newest: Snapshot, names: Collection[str]) -> Iterator[Remedy]:
    """Yield the expiry of the snapshots that need the files, if newer snapshots remain."""
    ids = snapshots.list_ids(store)
    last = 0
    for snapshot in _newest_first(store, newest):
        delta = manifests.delta_entries(store, snapshot)
        removed = _named(delta.filter(pc.equal(delta.column("kind"), DELETE)), names)
        needed = _index_files_of(store, snapshot, names) | _changelog_files_of(store, snapshot, names)
        if removed or needed:
            last = snapshot.id if needed else snapshot.id - 1
            break
    kept = sum(number > last for number in ids)
    if not last or not kept:
        return
    remedy = Remedy(
        "expire_snapshots",
        {"retain_min": kept, "retain_max": kept},
        ("--retain-min", str(kept), "--retain-max", str(kept)),
        f"it drops the snapshots up to {last}",
    )
    possible = first_possible(store, [remedy])[0]
    if possible is not None:
        yield possible


def _newest_first(store: TableStore, newest: Snapshot) -> Iterator[Snapshot]:
    ids = [number for number in snapshots.list_ids(store) if number <= newest.id]
    for number in ids[: -_MOST_SNAPSHOTS - 1 : -1]:
        snapshot = snapshots.try_read(store, number)
        if snapshot is not None:
            yield snapshot


def _find_adding(store: TableStore, newest: Snapshot, names: set[str]) -> dict[str, Snapshot]:
    """Return the snapshot that added each file of the newest snapshot, by file name."""
    added_by: dict[str, Snapshot] = {}
    holding: dict[str, Snapshot] = {}
    indexes = _index_files_of(store, newest, names)
    for snapshot in _newest_first(store, newest):
        delta = manifests.delta_entries(store, snapshot)
        matches = _named(delta.filter(pc.equal(delta.column("kind"), ADD)), names - set(added_by))
        added_by |= dict.fromkeys(matches, snapshot)
        held = _index_files_of(store, snapshot, indexes)
        added_by |= {name: holding[name] for name in indexes - held if name in holding}
        holding |= dict.fromkeys(held, snapshot)
        indexes = held
        if set(added_by) >= names:
            break
    return added_by


def _count_appends(store: TableStore, first: int, last: int) -> int:
    """Return the number of snapshots from ``first`` to ``last`` (both included) that are not compactions."""
    numbers = [number for number in snapshots.list_ids(store) if first <= number <= last]
    return sum(snapshot.commit_kind is not CommitKind.COMPACT for snapshot in snapshots.iterate(store, numbers))


def _named(entries: pa.Table, names: Collection[str]) -> set[str]:
    """Return those of ``names`` that are data files of manifest entries."""
    column = entries.column("file_name")
    matches = set(
        entries.filter(pc.is_in(column, arrow_array(list(names), pa.string()))).column("file_name").to_pylist()
    )
    return {str(name) for name in matches}


def _data_files_of(store: TableStore, snapshot: Snapshot, names: Collection[str]) -> set[str]:
    matches: set[str] = set()
    for part in manifests.iter_live(store, snapshot):
        matches |= _named(part, names)
    return matches


def _side_files_of(store: TableStore, snapshot: Snapshot, names: Collection[str]) -> set[str]:
    """Return those of ``names`` that are index files beside live data files."""
    matches: set[str] = set()
    for part in manifests.iter_live(store, snapshot):
        extras = pc.list_flatten(one_array(part.column("extra_files")))
        matches |= set(extras.filter(pc.is_in(extras, arrow_array(list(names), pa.string()))).to_pylist())
    return matches


def _index_files_of(store: TableStore, snapshot: Snapshot, names: Collection[str]) -> set[str]:
    return {entry.file_name for entry in manifests.index_entries(store, snapshot) if entry.file_name in names}


def _changelog_files_of(store: TableStore, snapshot: Snapshot, names: Collection[str]) -> set[str]:
    with suppress(DredgeError):
        listed = manifests.changelog_list(store, snapshot)
        return _named(manifests.entries_of(store, listed or []), names)
    return set()
