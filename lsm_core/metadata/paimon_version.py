"""Detection of the Paimon version that wrote a table's newest snapshots, from the JSON fields of each snapshot.

Observed fields by writer (semantics.md 12):

- Java 1.3 and 1.4: neither `uuid` nor `writerVersion`.
- Java 2.0.0 and its Spark connector: only `uuid`.
- Java 2.1 and pypaimon 2.1: `uuid` and `writerVersion`.
- pypaimon-rust: `uuid`, but no sizes of manifest lists, which every Java version writes.
- Dredge: only `writerVersion`, or neither field if the table follows 1.4.
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
from lsm_core.options.table_options import PAIMON_VERSION
from lsm_core.storage import FileIO, Kept, done_in_turn, place_of

PREFIX: Final = "snapshot-"
EXAMINED_SNAPSHOTS: Final = 10
"""Number of newest snapshots to read: Paimon's default minimum to retain, so that opening cost is bounded."""


@dataclass(frozen=True)
class Evidence:
    """What one snapshot shows about the Paimon version of its writer.

    Attributes:
        snapshot_id: id of the snapshot.
        writer: `writerVersion` of the snapshot, else the version that its `uuid` implies, else None.
        unmarked: whether the snapshot has neither field, as in Paimon 1.4 and earlier.
        reason: explanation for the user.
    """

    snapshot_id: int
    writer: str | None
    unmarked: bool
    reason: str

    @property
    def version(self) -> PaimonVersion | None:
        """Paimon version of the snapshot's writer, or None if the snapshot does not show the version."""
        return PaimonVersion.V1_4 if self.unmarked else version_written_by(self.writer)


def judge_snapshot(snapshot: Snapshot) -> Evidence:
    """Return what a snapshot's fields `uuid` and `writerVersion` show about the Paimon version of its writer."""
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
    """Return the `writerVersion` to write into a copy of a snapshot; the copy has no `uuid`.

    With this value the table keeps following the same Paimon version.

    Args:
        snapshot: the snapshot whose fields are copied.

    Returns:
        The `writerVersion`, or None for a snapshot of Paimon 1.4 or of unknown version.
    """
    version = judge_snapshot(snapshot).version
    return snapshot.writer_version or (None if version is None else written_as(version))


def read_evidence(
    file_io: FileIO, snapshot_dir: str, kept: Kept | None = None, newest: Snapshot | None = None
) -> list[Evidence]:
    """Return the Paimon versions of the writers of the newest snapshots, as far as the snapshots show them.

    Up to :data:`EXAMINED_SNAPSHOTS` snapshots are read, and none after the first missing or unreadable snapshot.
    An unreadable snapshot raises no error here, so that the table can still be opened and repaired. Reads of this
    snapshot report the damage.

    Args:
        file_io: access to the files.
        snapshot_dir: the table's snapshot directory.
        kept: cache of the versions read earlier (`Evidence`), or None. A rollback is noticed when the table is opened
            again.
        newest: the newest snapshot if the caller has just read it, or None.

    Returns:
        One `Evidence` (snapshot with the Paimon version of its writer) per snapshot, newest first.
    """

    def judge(snapshot_id: int) -> Evidence | None:
        path = f"{snapshot_dir}/{PREFIX}{snapshot_id}"
        evidence: Evidence | None = None if kept is None else kept.get(("writer", path))
        if evidence is None:
            try:
                snapshot = newest if newest is not None and newest.id == snapshot_id else None
                evidence = judge_snapshot(snapshot or Snapshot.from_json(file_io.read_bytes(path), path))
            except (FileNotFoundError, CorruptFile):
                return None
            if kept is not None:
                kept.put(("writer", path), evidence, len(path))
        return evidence

    newest_id = (hints.find_latest(file_io, snapshot_dir, PREFIX) or 0) if newest is None else newest.id
    requests = [
        partial(judge, snapshot_id) for snapshot_id in range(newest_id, max(0, newest_id - EXAMINED_SNAPSHOTS), -1)
    ]
    judged: list[Evidence] = []
    for item in done_in_turn(requests, at_once=bool(place_of(snapshot_dir))):
        if item is None:
            break
        judged.append(item)
    return judged


def of_snapshots(file_io: FileIO, snapshot_dir: str, kept: Kept | None = None) -> PaimonVersion | None:
    """Return the Paimon version that a table follows according to the writers of its newest snapshots.

    Args:
        file_io: access to the files.
        snapshot_dir: the table's snapshot directory.
        kept: cache of the versions read earlier (`Evidence`), or None.

    Returns:
        The version, or None if no examined snapshot shows its writer's version, so that the default applies.
    """
    writers = [item.writer for item in read_evidence(file_io, snapshot_dir, kept)]
    return version_followed(writers) if any(writer is not None for writer in writers) else None


def followed(file_io: FileIO, snapshot_dir: str, options: TableOptions) -> PaimonVersion:
    """Return the Paimon version that a table follows: that of its option, else of its snapshots, else the default.

    For append tables without incremental clustering, `TableStore.open` does not read snapshots, so the options of the
    opened table do not contain the version.

    Args:
        file_io: access to the table's files.
        snapshot_dir: directory of the table's snapshots.
        options: the table's options.
    """
    version = None if options.is_set(PAIMON_VERSION) else of_snapshots(file_io, snapshot_dir)
    return options.paimon_version if version is None else version


def describe_version(options: TableOptions, from_writers: bool) -> str:
    """Return a text for the user: the Paimon version that a table follows, and the reason.

    Args:
        options: the table's effective options.
        from_writers: whether the version comes from a snapshot's writer, not from an option.

    Returns:
        A text like "2.1 (default)".
    """
    reason = "dredge.paimon-version" if options.is_set(PAIMON_VERSION) else "default"
    return f"{options.paimon_version} ({'the newest writer of its snapshots' if from_writers else reason})"


def explain_version(options: TableOptions, from_writers: bool, judged: Sequence[Evidence]) -> str:
    """Return a text for the user: the Paimon version that a table follows, and the snapshots or option that show it.

    Args:
        options: the table's effective options.
        from_writers: whether the version comes from a snapshot's writer, not from an option.
        judged: version evidence (`Evidence`) of the newest snapshots, newest first.

    Returns:
        A text like "2.1: snapshot 7 names its writer java-2.1.0".
    """
    version = options.paimon_version
    if not from_writers and options.is_set(PAIMON_VERSION):
        return f"{version}: the option '{PAIMON_VERSION}' is set"
    reasons = [item.reason for item in judged if item.version is version]
    if reasons:
        return f"{version}: {reasons[0]}"
    return f"{version}: the default, no snapshot says which version wrote it" if judged else f"{version}: the default"


def find_contradiction(options: TableOptions, from_writers: bool, judged: Sequence[Evidence]) -> str | None:
    """Return the reason why a merge might follow the wrong Paimon version.

    The version is in doubt if an older Paimon version wrote after a newer one, and both versions merge this table
    differently. No upgrade explains this order. An explicit option removes the doubt. Reads are not blocked: they
    follow the newest version.

    Args:
        options: the table's effective options.
        from_writers: whether the version comes from a snapshot's writer, not from an option.
        judged: version evidence (`Evidence`) of the newest snapshots, newest first.

    Returns:
        The reason and the remedy, or None if every merge is safe.
    """
    if options.is_set(PAIMON_VERSION) and not from_writers:
        return None
    versioned = [(item.version, item.reason) for item in judged if item.version is not None]
    versions = [version for version, _ in reversed(versioned)]
    subject = answers_differ(options.raw, versions)
    if subject is None or not order_of_versions_broken(versions):
        return None
    newer, reason = max(versioned, key=lambda mark: mark[0].numbers)
    older_reason = next(other_reason for version, other_reason in versioned if version is not newer)
    return (
        f"snapshots of Paimon {' and '.join(sorted(set(versions)))} in turn ({reason}; {older_reason}), "
        f"whose answers differ for {subject}: set '{PAIMON_VERSION}' to the version that its readers have"
    )


def mixed(options: TableOptions, from_writers: bool, judged: Sequence[Evidence]) -> str | None:
    """Return a warning about snapshots of several Paimon versions, or of a version that the table does not follow.

    Args:
        options: the table's effective options.
        from_writers: whether the version comes from a snapshot's writer, not from an option.
        judged: version evidence (`Evidence`) of the newest snapshots, newest first.

    Returns:
        The warning, or None if no warning is needed.
    """
    versions = sorted({str(item.version) for item in judged if item.version is not None})
    marked = any(item.writer is not None for item in judged)
    if len(versions) < 2 and (not marked or not versions or versions == [str(options.paimon_version)]):
        return None
    writers = " and ".join(versions)
    return (
        f"its newest snapshots were written by Paimon {writers}; "
        f"answers follow {describe_version(options, from_writers)}"
    )
