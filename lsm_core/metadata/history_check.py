"""What is wrong with a table's line of snapshots: hints that do not name its ends, and ids that are missing in between."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from lsm_core.metadata import changelogs, hints, snapshots
from lsm_core.metadata.store import TableStore

_FOLDERS: Final = ("snapshot", "changelog")


@dataclass(frozen=True)
class WrongHint:
    """A hint file of ``folder`` (snapshot or changelog) that says ``found`` ("" = it is missing), not ``wanted`` (None: it is to go)."""

    folder: str
    name: str
    found: str
    wanted: int | None
    reason: str


def wrong_hints(store: TableStore) -> list[WrongHint]:
    """Return the hints that do not name the first and the last file of their folder."""
    found = []
    for folder in _FOLDERS:
        place = f"{store.metadata_root}/{folder}"
        ids = snapshots.list_ids(store) if folder == "snapshot" else changelogs.list_changelogs(store)
        for name, wanted in ((hints.EARLIEST, min(ids, default=None)), (hints.LATEST, max(ids, default=None))):
            try:
                text = store.file_io.read_bytes(f"{place}/{name}").decode("utf-8", "replace").strip()[:40]
            except FileNotFoundError:
                text = ""
            if text == ("" if wanted is None else str(wanted)):
                continue
            if wanted is None:
                why = f"there is no {folder}"
            elif not text:
                why = "it is missing: readers list the folder"
            else:
                why = f"{'the oldest' if name == hints.EARLIEST else 'the newest'} {folder} is {wanted}"
            found.append(WrongHint(folder, name, text, wanted, why))
    return found


def history_warnings(store: TableStore) -> list[str]:
    """Return what a table's owner should know: gaps in the ids, and hints that mislead other engines (one that is missing does not)."""
    told = [
        f"snapshots {first}..{last} are missing, which can end expiry by other engines for good; `dredge repair {store.name}` bridges the gap"
        for first, last in snapshots.gaps(snapshots.list_ids(store))
    ]
    told += [
        f"the hint {hint.folder}/{hint.name} says {hint.found}, and {hint.reason}; `dredge repair {store.name}`"
        for hint in wrong_hints(store)
        if hint.found and _misleads(store, hint)
    ]
    return told


def _misleads(store: TableStore, hint: WrongHint) -> bool:
    """Whether Java would believe a wrong hint: it asks whether EARLIEST is there, and of LATEST only whether the next one is."""
    if not hint.found.isdecimal():
        return True
    exists = snapshots.exists if hint.folder == "snapshot" else changelogs.exists
    number = int(hint.found)
    return exists(store, number) if hint.name == hints.EARLIEST else not exists(store, number + 1)


__all__ = ["WrongHint", "history_warnings", "wrong_hints"]
