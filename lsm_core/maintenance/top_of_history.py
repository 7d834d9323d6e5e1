"""How the newest snapshots are exchanged at once, although they are many files: behind a snapshot that stands above them meanwhile.

A rollback takes the newest snapshots away, its undoing puts them back. Whoever reads meanwhile shall see the table before or after, and
whoever commits meanwhile shall lose nothing. So first a cover is published: an ordinary snapshot with the next free id whose content is
that of the version to come; commits race with it as with any other. The snapshots below it are exchanged, and the cover is taken away. A
commit that was made on the cover is never lost: the cover stays then, and all snapshots below it come back, so that the history has the
version to come as its newest but one and no gap.
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
"""Snapshot property of a cover: the deletion record that it serves."""
_USER: Final = "dredge-rollback"


def cover_of(store: TableStore, to_come: Snapshot, cover_id: int, trash_id: str, plan_hash: str) -> Snapshot:
    """A snapshot called ``cover_id`` with the content of ``to_come``: its manifest lists, no changes of its own for streams."""
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
    """The cover of that record, None where no snapshot has the id or another one has it. Raises CorruptFile."""
    found = snapshots.try_read(store, cover_id)
    return found if found is not None and (found.properties or {}).get(COVER_PROPERTY) == trash_id else None


def built_upon(store: TableStore, cover_id: int) -> bool:
    """Whether somebody has committed on top of the cover."""
    return any(number > cover_id for number in snapshots.list_ids(store))


def uncover(store: TableStore, cover: Snapshot) -> bool:
    """Take the cover away, so that the one below it is the newest snapshot; False, and nothing changed, when somebody has committed on it,
    or an expiry at the same time took all below it away. Where a fast-forward put another history into its place, that is left as it is.

    Without the hint LATEST everybody looks for the newest snapshot, so that no step leaves a hint to one that is gone, nor one that hides
    a newer one.
    """
    if built_upon(store, cover.id):
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


def take_away(store: TableStore, texts: Mapping[int, str]) -> None:
    """Delete these snapshots, oldest first; one whose content is another by now stays."""
    for number in sorted(texts):
        path = store.snapshot_path(number)
        if is_there(store, number, texts[number]):
            store.delete(path)


def is_there(store: TableStore, number: int, text: str) -> bool:
    """Whether the snapshot is there with exactly this text."""
    try:
        return store.file_io.read_bytes(store.snapshot_path(number)) == text.encode()
    except FileNotFoundError:
        return False


def put_back(store: TableStore, texts: Mapping[int, str]) -> None:
    """Create these snapshots, oldest first. Raises PlanRefused when another snapshot has one of the ids."""
    for number in sorted(texts):
        path, data = store.snapshot_path(number), texts[number].encode()
        if not store.file_io.write_exclusive(path, data) and store.file_io.read_bytes(path) != data:
            detail = f"another {PurePosixPath(path).name} is there now"
            raise PlanRefused(RefusalRule.HISTORY_CHANGED, table=store.name, detail=detail)


__all__ = [
    "COVER_PROPERTY",
    "built_upon",
    "cover_of",
    "find_cover",
    "is_there",
    "put_back",
    "take_away",
    "uncover",
]
