"""Which version of Paimon wrote a table's newest snapshots."""

from __future__ import annotations

from functools import partial
from typing import Final

from lsm_core.errors import CorruptFile
from lsm_core.format.snapshot import Snapshot
from lsm_core.metadata import hints
from lsm_core.options import PaimonVersion, TableOptions, version_followed, version_written_by
from lsm_core.options.paimon_version import KEY
from lsm_core.storage import FileIO, Kept, done_in_turn, place_of

PREFIX: Final = "snapshot-"
LOOKED_AT: Final = 10
"""Snapshots that are read, as many as a table keeps at least by default: opening a table costs the same whatever it keeps."""


def writer_versions(
    file_io: FileIO, snapshot_dir: str, kept: Kept | None = None, newest: Snapshot | None = None
) -> list[str | None]:
    """The `writerVersion` of the newest :data:`LOOKED_AT` snapshots, newest first; none before one that is missing or unreadable.

    Whoever needs such a snapshot says that it is unreadable; a table can be opened, and repaired, all the same. ``newest``: where it
    has just been read. What ``kept`` remembers is not read again: who rolls a table back and writes it with another version is heard of
    by those who open it then.
    """

    def writer_of(number: int) -> tuple[str | None] | None:
        path = f"{snapshot_dir}/{PREFIX}{number}"
        known: tuple[str | None] | None = None if kept is None else kept.get(("writer", path))
        if known is None:
            try:
                snapshot = newest if newest is not None and newest.id == number else None
                known = ((snapshot or Snapshot.from_json(file_io.read_bytes(path), path)).writer_version,)
            except (FileNotFoundError, CorruptFile):
                return None
            if kept is not None:
                kept.put(("writer", path), known, len(path))
        return known

    last = (hints.find_latest(file_io, snapshot_dir, PREFIX) or 0) if newest is None else newest.id
    looks = [partial(writer_of, number) for number in range(last, max(0, last - LOOKED_AT), -1)]
    found: list[str | None] = []
    for one in done_in_turn(looks, at_once=bool(place_of(snapshot_dir))):
        if one is None:
            break
        found += one
    return found


def of_snapshots(file_io: FileIO, snapshot_dir: str, kept: Kept | None = None) -> PaimonVersion | None:
    """The version that a table follows for its snapshots' sake; None: no writer tells, so that the default holds."""
    texts = writer_versions(file_io, snapshot_dir, kept)
    return version_followed(texts) if any(text is not None for text in texts) else None


def followed(file_io: FileIO, snapshot_dir: str, options: TableOptions) -> PaimonVersion:
    """The version that a table follows, where opening it did not look at its snapshots (tables without keys merge nothing)."""
    found = None if options.is_set(KEY) else of_snapshots(file_io, snapshot_dir)
    return options.paimon_version if found is None else found


def told(options: TableOptions, found: bool) -> str:
    """For people: the version that is followed and why; ``found``: for its snapshots' sake."""
    why = (
        "the newest writer of its snapshots" if found else "dredge.paimon-version" if options.is_set(KEY) else "default"
    )
    return f"{options.paimon_version} ({why})"


def mixed(
    file_io: FileIO,
    snapshot_dir: str,
    options: TableOptions,
    found: bool,
    kept: Kept | None = None,
    newest: Snapshot | None = None,
) -> str | None:
    """A warning where the newest snapshots are of several versions that answer differently, or not of the one that is followed.

    ``kept`` and ``newest``: see :func:`writer_versions`.
    """
    texts = writer_versions(file_io, snapshot_dir, kept, newest)
    versions = sorted({str(version_written_by(text) or "1.4 or 2.0, unnamed") for text in texts})
    if len(versions) < 2 and (not any(texts) or versions == [str(options.paimon_version)]):
        return None
    return (
        f"its newest snapshots were written by Paimon {' and '.join(versions)}; answers follow {told(options, found)}"
    )
