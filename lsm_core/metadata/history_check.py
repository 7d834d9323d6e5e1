"""Checks of a table's snapshot history: wrong EARLIEST and LATEST hints, and missing ids."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import Final

from lsm_core.errors import CorruptFile
from lsm_core.metadata import changelogs, hints, snapshots
from lsm_core.metadata.store import TableStore

_FOLDERS: Final = ("snapshot", "changelog")


@dataclass(frozen=True)
class WrongHint:
    """A hint file with a wrong value.

    Attributes:
        folder: `snapshot` or `changelog`.
        name: `EARLIEST` or `LATEST`.
        found: text of the hint file, "" if the file is missing.
        wanted: the correct id, or None if the file should not exist.
        reason: explanation for the user.
    """

    folder: str
    name: str
    found: str
    wanted: int | None
    reason: str


def wrong_hints(store: TableStore) -> list[WrongHint]:
    """Return the wrong hints of snapshots and changelogs: EARLIEST must name the oldest id, LATEST the newest id."""
    wrong = []
    for folder in _FOLDERS:
        path = f"{store.metadata_root}/{folder}"
        ids = snapshots.list_ids(store) if folder == "snapshot" else changelogs.list_changelogs(store)
        for name, expected in ((hints.EARLIEST, min(ids, default=None)), (hints.LATEST, max(ids, default=None))):
            try:
                text = store.file_io.read_bytes(f"{path}/{name}").decode("utf-8", "replace").strip()[:40]
            except FileNotFoundError:
                text = ""
            if text == ("" if expected is None else str(expected)):
                continue
            if expected is None:
                reason = f"the table has no {folder}"
            elif not text:
                reason = "it is missing: readers list the folder"
            else:
                reason = f"{'the oldest' if name == hints.EARLIEST else 'the newest'} {folder} is {expected}"
            wrong.append(WrongHint(folder, name, text, expected, reason))
    return wrong


def history_warnings(store: TableStore) -> list[str]:
    """Return warnings about gaps in the snapshot ids and about hints that mislead other engines.

    A missing hint misleads no engine, so it causes no warning.
    """
    name = shlex.quote(store.name)
    warnings = [
        f"snapshots {first}..{last} are missing, which can stop expiry by other engines permanently; "
        f"`dredge repair {name}` bridges the gap"
        for first, last in snapshots.gaps(snapshots.list_ids(store))
    ]
    warnings += [
        f"the hint {hint.folder}/{hint.name} says {hint.found}, but {hint.reason}; run `dredge repair {name}`"
        for hint in wrong_hints(store)
        if hint.found and _misleads(store, hint)
    ]
    return warnings


def find_damaged_history(store: TableStore, most: int, *, lists: bool) -> str | None:
    """Return the first damage of the oldest snapshots, on which expiry fails, or None if none is found.

    Manifests are not read: `examine` (`dredge repair --dry-run`) finds every damage.

    Args:
        store: the table.
        most: most snapshots to read, the oldest first.
        lists: whether the manifest lists of these snapshots must exist with their recorded sizes. This lists the whole
            folder of manifests once.

    Returns:
        The file, and what is wrong with it.
    """
    read = []
    for number in snapshots.list_ids(store)[:most]:
        try:
            snapshot = snapshots.try_read(store, number)
        except CorruptFile as error:
            return error.finding
        if snapshot is not None:
            read.append(snapshot)
    sizes = {entry.name: entry.size for entry in store.file_io.list_dir(store.manifest_dir)} if lists else {}
    for snapshot in read if lists else ():
        for name, size in (
            (snapshot.base_manifest_list, snapshot.base_manifest_list_size),
            (snapshot.delta_manifest_list, snapshot.delta_manifest_list_size),
            (snapshot.changelog_manifest_list, snapshot.changelog_manifest_list_size),
        ):
            if name is None or sizes.get(name) == size or (name in sizes and size is None):
                continue
            if snapshots.exists(store, snapshot.id):  # else it expired meanwhile, together with its lists
                wrong = (
                    "does not exist" if name not in sizes else f"has {sizes[name]:,} bytes, but {size:,} are recorded"
                )
                return f"manifest list {name} of snapshot {snapshot.id} {wrong}"
    return None


def _misleads(store: TableStore, hint: WrongHint) -> bool:
    """Return whether Java would trust the wrong hint ``hint``.

    For EARLIEST, Java checks whether the named snapshot exists. For LATEST, Java only checks that no snapshot with the
    next id exists.
    """
    if not hint.found.isdecimal():
        return True
    exists = snapshots.exists if hint.folder == "snapshot" else changelogs.exists
    number = int(hint.found)
    return exists(store, number) if hint.name == hints.EARLIEST else not exists(store, number + 1)
