"""Checks of a table's snapshot history: wrong EARLIEST and LATEST hints, and missing ids."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import Final

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
