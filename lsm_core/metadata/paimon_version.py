"""Which version of Paimon wrote a table's newest snapshots, by what each writer leaves in them.

What the writers were seen to write (semantics.md 12): Java 1.3 and 1.4 neither a `uuid` nor a `writerVersion`; Java 2.0.0 and its Spark
connector a `uuid` alone; Java 2.1 and pypaimon 2.1 both; pypaimon-rust a `uuid` without the sizes of its manifest lists, which each Java
writes; Dredge a `writerVersion` alone, or neither where the table follows 1.4.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from lsm_core.errors import CorruptFile
from lsm_core.format.snapshot import Snapshot
from lsm_core.metadata import hints
from lsm_core.options import (
    PaimonVersion,
    TableOptions,
    answers_differ,
    order_of_versions_broken,
    version_followed,
    version_written_by,
    written_as,
)
from lsm_core.options.paimon_version import KEY
from lsm_core.storage import FileIO, Kept, done_in_turn, place_of

PREFIX: Final = "snapshot-"
LOOKED_AT: Final = 10
"""Snapshots that are read, as many as a table keeps at least by default: opening a table costs the same whatever it keeps."""


@dataclass(frozen=True)
class Evidence:
    """What one snapshot says about the version of its writer.

    Attributes:
        snapshot_id: Its id.
        writer: The text that names a version: its `writerVersion`, or the one that its `uuid` implies; None where neither does.
        unmarked: Whether it has neither member, as Paimon 1.4 and before write it.
        reason: The evidence in words, for people.
    """

    snapshot_id: int
    writer: str | None
    unmarked: bool
    reason: str

    @property
    def version(self) -> PaimonVersion | None:
        """The version that is implied; None for a writer of any version."""
        return PaimonVersion.V1_4 if self.unmarked else version_written_by(self.writer)


def judge_snapshot(snapshot: Snapshot) -> Evidence:
    """Return what the members of a snapshot say of its writer; see the head of this module."""
    number, text = snapshot.id, snapshot.writer_version
    if version_written_by(text) is not None:
        return Evidence(number, text, unmarked=False, reason=f"snapshot {number} names its writer {text}")
    if snapshot.uuid is None:
        reason = f"snapshot {number} has neither a uuid nor a writerVersion, as Paimon 1.4 and before write it"
        return Evidence(number, text, unmarked=text is None, reason=reason)
    if snapshot.delta_manifest_list_size is None:
        reason = f"snapshot {number} has a uuid and no sizes of manifest lists, as pypaimon-rust writes it: no version"
        return Evidence(number, None, unmarked=False, reason=reason)
    reason = f"snapshot {number} has a uuid and names no writer, as Paimon 2.0 writes it"
    return Evidence(number, "uuid-2.0", unmarked=False, reason=reason)


def carried_writer(snapshot: Snapshot) -> str | None:
    """Return the `writerVersion` of a snapshot that is made from ``snapshot`` without its uuid: the table then follows the same version.

    Args:
        snapshot: The snapshot whose members are copied.

    Returns:
        The text; None for a snapshot of 1.4, or of no version.
    """
    version = judge_snapshot(snapshot).version
    return snapshot.writer_version or (None if version is None else written_as(version))


def read_evidence(
    file_io: FileIO, snapshot_dir: str, kept: Kept | None = None, newest: Snapshot | None = None
) -> list[Evidence]:
    """Read the newest :data:`LOOKED_AT` snapshots and judge them, up to one that is missing or unreadable.

    A reader of such a snapshot reports it; the table can still be opened and repaired.

    Args:
        file_io: Where the files are.
        snapshot_dir: The table's folder of snapshots.
        kept: What it remembers is not read again: a table that was rolled back since is judged anew when it is opened.
        newest: The newest snapshot, where it has just been read.

    Returns:
        The evidence of each snapshot, newest first.
    """

    def judge(number: int) -> Evidence | None:
        path = f"{snapshot_dir}/{PREFIX}{number}"
        known: Evidence | None = None if kept is None else kept.get(("writer", path))
        if known is None:
            try:
                snapshot = newest if newest is not None and newest.id == number else None
                known = judge_snapshot(snapshot or Snapshot.from_json(file_io.read_bytes(path), path))
            except (FileNotFoundError, CorruptFile):
                return None
            if kept is not None:
                kept.put(("writer", path), known, len(path))
        return known

    last = (hints.find_latest(file_io, snapshot_dir, PREFIX) or 0) if newest is None else newest.id
    looks = [partial(judge, number) for number in range(last, max(0, last - LOOKED_AT), -1)]
    judged: list[Evidence] = []
    for item in done_in_turn(looks, at_once=bool(place_of(snapshot_dir))):
        if item is None:
            break
        judged.append(item)
    return judged


def of_snapshots(file_io: FileIO, snapshot_dir: str, kept: Kept | None = None) -> PaimonVersion | None:
    """The version that a table follows for its snapshots' sake; None: no writer tells, so that the default holds."""
    texts = [item.writer for item in read_evidence(file_io, snapshot_dir, kept)]
    return version_followed(texts) if any(text is not None for text in texts) else None


def followed(file_io: FileIO, snapshot_dir: str, options: TableOptions) -> PaimonVersion:
    """The version that a table follows, where opening it did not look at its snapshots (tables without keys merge nothing)."""
    found = None if options.is_set(KEY) else of_snapshots(file_io, snapshot_dir)
    return options.paimon_version if found is None else found


def told(options: TableOptions, from_writers: bool) -> str:
    """Return the version that a table follows and why, for people.

    Args:
        options: The table's options in force.
        from_writers: Whether the version is that of a snapshot's writer, not one that was set.
    """
    reason = "dredge.paimon-version" if options.is_set(KEY) else "default"
    return f"{options.paimon_version} ({'the newest writer of its snapshots' if from_writers else reason})"


def explain_version(options: TableOptions, from_writers: bool, judged: Sequence[Evidence]) -> str:
    """Return the version that a table follows and the evidence for it, for people.

    Args:
        options: See :func:`told`.
        from_writers: See :func:`told`.
        judged: The evidence of the newest snapshots, newest first.
    """
    version = options.paimon_version
    if not from_writers and options.is_set(KEY):
        return f"{version}: the option '{KEY}' is set"
    reasons = [item.reason for item in judged if item.version is version]
    if reasons:
        return f"{version}: {reasons[0]}"
    return f"{version}: the default, no snapshot says which version wrote it" if judged else f"{version}: the default"


def find_contradiction(options: TableOptions, from_writers: bool, judged: Sequence[Evidence]) -> str | None:
    """Return why a merge of a table might follow the wrong version.

    That is so where an older version wrote after a newer one, which no upgrade explains, and a function or rule of the table answers
    differently in these versions. An option that is set settles it. Reads are not stopped: they follow the newest version.

    Args:
        options: See :func:`told`.
        from_writers: See :func:`told`.
        judged: The evidence of the newest snapshots, newest first.

    Returns:
        The reason and what to do; None where no merge can.
    """
    if options.is_set(KEY) and not from_writers:
        return None
    marked = [(item.version, item.reason) for item in judged if item.version is not None]
    versions = [version for version, _ in reversed(marked)]
    subject = answers_differ(options.raw, versions)
    if subject is None or not order_of_versions_broken(versions):
        return None
    newer, reason = max(marked, key=lambda mark: mark[0].numbers)
    reason_of_older = next(other for version, other in marked if version is not newer)
    return (
        f"snapshots of Paimon {' and '.join(sorted(set(versions)))} in turn ({reason}; {reason_of_older}), whose answers differ for "
        f"{subject}: set '{KEY}' to the version that its readers have"
    )


def mixed(options: TableOptions, from_writers: bool, judged: Sequence[Evidence]) -> str | None:
    """Return a warning where the newest snapshots are of several versions that answer differently, or not of the one that is followed.

    Args:
        options: See :func:`told`.
        from_writers: See :func:`told`.
        judged: The evidence of the newest snapshots, newest first.

    Returns:
        The warning; None where there is nothing to warn of.
    """
    versions = sorted({str(item.version) for item in judged if item.version is not None})
    marked = any(item.writer is not None for item in judged)
    if len(versions) < 2 and (not marked or not versions or versions == [str(options.paimon_version)]):
        return None
    return f"its newest snapshots were written by Paimon {' and '.join(versions)}; answers follow {told(options, from_writers)}"
