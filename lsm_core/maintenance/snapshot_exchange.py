"""Atomic exchange of several newest snapshots behind a temporary snapshot, the cover.

A rollback removes the newest snapshots; its undo restores them. Readers must see the table before or after the
exchange, and no concurrent commit may be lost. So first a cover is published: an ordinary snapshot with the next free
id and the content that the table has after the exchange. Commits race with the cover as with any snapshot. Then the
snapshots below the cover are exchanged, and the cover is removed. If a commit was made on the cover, the cover stays
and all snapshots below it are restored, so that the history has no gap.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Final

from lsm_core.errors import PlanRefused, RefusalRule
from lsm_core.format.snapshot import BATCH_COMMIT_IDENTIFIER, CommitKind, Snapshot
from lsm_core.maintenance.action import PLAN_PROPERTY
from lsm_core.metadata import hints, snapshots
from lsm_core.metadata.paimon_version import carried_writer
from lsm_core.metadata.store import TableStore

COVER_PROPERTY: Final = "dredge.cover"
"""Snapshot property of a cover: id of its deletion record, or "fast-forward" in a fast-forward."""
_USER: Final = "dredge-rollback"


def build_cover(store: TableStore, to_come: Snapshot, cover_id: int, trash_id: str, plan_hash: str) -> Snapshot:
    """Return the cover: a temporary snapshot with the manifest lists of ``to_come``, and no changes for streams.

    Args:
        store: the table.
        to_come: snapshot whose content becomes the newest.
        cover_id: id of the cover.
        trash_id: id of the rollback's deletion record in the trash.
        plan_hash: hash of the plan that the rollback or its undo applies.
    """
    return replace(
        to_come,
        id=cover_id,
        commit_user=_USER,
        commit_identifier=BATCH_COMMIT_IDENTIFIER,
        commit_kind=CommitKind.OVERWRITE,
        time_millis=store.clock.now_ms(),
        changelog_manifest_list=None,
        changelog_manifest_list_size=None,
        changelog_record_count=0,
        delta_record_count=0,
        uuid=None,
        writer_version=carried_writer(to_come),
        properties={**(to_come.properties or {}), COVER_PROPERTY: trash_id, PLAN_PROPERTY: plan_hash},
    )


def find_cover(store: TableStore, cover_id: int, trash_id: str) -> Snapshot | None:
    """Return the cover (temporary newest snapshot) of a rollback, or None if the snapshot is not this cover.

    Args:
        store: the table.
        cover_id: id of the snapshot that may be the cover.
        trash_id: id of the rollback's deletion record in the trash, which the cover stores as a property.

    Returns:
        The snapshot, or None if it is missing, or has no or a different record id.

    Raises:
        CorruptFile: the snapshot cannot be read.
    """
    snapshot = snapshots.try_read(store, cover_id)
    return snapshot if snapshot is not None and (snapshot.properties or {}).get(COVER_PROPERTY) == trash_id else None


def has_successor(store: TableStore, cover_id: int) -> bool:
    """Return whether a snapshot newer than the cover (temporary newest snapshot of a rollback) exists.

    Args:
        store: the table.
        cover_id: id of the cover.
    """
    return any(number > cover_id for number in snapshots.list_ids(store))


def remove_cover(store: TableStore, cover: Snapshot) -> bool:
    """Remove the cover (temporary newest snapshot), so that the snapshot below becomes the newest.

    At no step does the hint LATEST name a missing snapshot or one older than the newest. Without the hint, readers
    search for the newest snapshot.

    Args:
        store: the table.
        cover: temporary newest snapshot to remove.

    Returns:
        True if the cover was removed. False if a snapshot newer than the cover exists, or if a concurrent expiry
            removed all snapshots below the cover. The cover is then kept, or written again. A snapshot of a branch that
            a concurrent fast-forward wrote with the cover's id is not overwritten: the result is False if the branch
            has newer snapshots too, otherwise True.
    """
    if has_successor(store, cover.id):
        return False
    path = store.snapshot_path(cover.id)
    store.delete(f"{store.snapshot_dir}/{hints.LATEST}")
    store.delete(path)
    left = snapshots.list_ids(store)
    if not left or left[-1] > cover.id:
        store.file_io.write_exclusive(path, cover.to_json())
        return False
    snapshots.point_latest(store)
    return True


def remove_snapshots(store: TableStore, texts: Mapping[int, str]) -> None:
    """Delete snapshots, oldest first, except snapshots whose text differs from the expected text.

    Args:
        store: the table.
        texts: expected JSON text by snapshot id.
    """
    for number in sorted(texts):
        path = store.snapshot_path(number)
        if has_snapshot(store, number, texts[number]):
            store.delete(path)


def has_snapshot(store: TableStore, number: int, text: str) -> bool:
    """Return whether the snapshot exists with exactly this text.

    Args:
        store: the table.
        number: id of the snapshot.
        text: expected JSON text.
    """
    try:
        return store.file_io.read_bytes(store.snapshot_path(number)) == text.encode()
    except FileNotFoundError:
        return False


def restore_snapshots(store: TableStore, texts: Mapping[int, str]) -> None:
    """Create snapshots, oldest first; snapshots that exist with the same text are kept.

    Args:
        store: the table.
        texts: JSON text by snapshot id.

    Raises:
        PlanRefused: a snapshot with one of the ids exists and has a different content.
    """
    for number in sorted(texts):
        path, data = store.snapshot_path(number), texts[number].encode()
        if not store.file_io.write_exclusive(path, data) and store.file_io.read_bytes(path) != data:
            detail = f"another {PurePosixPath(path).name} is there now"
            raise PlanRefused(RefusalRule.HISTORY_CHANGED, table=store.name, detail=detail)
