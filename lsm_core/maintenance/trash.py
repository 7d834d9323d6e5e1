"""Deletion records of files that a sweep deletes later, and their claims.

A claim is a file that reserves a deletion record for a sweep or for a restore, so that never both process the record.
"""

from __future__ import annotations

import base64
import json
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import PurePosixPath
from typing import Any, ClassVar, Final

from lsm_core.errors import CorruptFile, InvalidData, InvalidOption
from lsm_core.json_text import LATEST_MS, parse_json, time_of
from lsm_core.maintenance.action import Declined, PlanItem
from lsm_core.maintenance.file_allowlist import OwnFiles
from lsm_core.metadata.store import TableStore
from lsm_core.storage import check_name

_VERSION: Final = 1
_RECORD: Final = ".json"
_CLAIM: Final = ".claim"
_SAY_SNAPSHOTS: Final = ("snapshot", "tag", "changelog")
SWEEP: Final = "sweep"
RESTORE: Final = "restore"
EXPIRED_CHANGELOGS: Final = "expire_changelogs"
"""Action of records whose ``snapshots`` had expired earlier, and whose kept changelogs were removed."""
ORPHANS: Final = "orphans"
"""Action of records without snapshots: their files were unreferenced."""
DELETED_BRANCH: Final = "delete_branch"
"""Action of records that keep the content of all metadata files of a deleted branch, in ``metadata``."""
FORWARDED: Final = "fast_forward"
"""Action of records that keep the part of a branch's history that a fast-forward dropped."""
ROLLED_BACK: Final = "rollback"
"""Action of records whose ``snapshots`` were the newest, until the table was rolled back to an older one."""


@dataclass(frozen=True)
class DeleteItem(PlanItem):
    """File to delete that no retained snapshot, tag or branch needs.

    Attributes:
        path: path relative to the table's root, or absolute below an external path (`data-file.external-paths`).
        kind: data, changelog, manifest, manifest-sidecar, manifest-list, index, index-manifest, statistics or
            temporary.
        size: size of the file in bytes, 0 if unknown.
        reason: reason of the deletion.
        trash_id: id of the file's deletion record (action "trash").
    """

    item_kind: ClassVar[str] = "delete"
    title: ClassVar[str] = "would free"
    columns: ClassVar[tuple[str, ...]] = ("file", "kind", "bytes", "why")

    path: str
    kind: str
    size: int
    reason: str
    trash_id: str = ""

    def cells(self) -> tuple[Any, ...]:
        """Return the path of the file, its kind, its size and the reason of the deletion."""
        return (self.path, self.kind, self.size, self.reason)


def ledger_line_of_held(item: Declined) -> dict[str, Any]:
    """Return the line for the ledger (record of maintenance runs) about a file that is kept because it is needed.

    Args:
        item: the kept file.
    """
    return {"event": "kept", "file": item.subject, "reason": item.text}


@dataclass(frozen=True)
class TrashRecord:
    """Deletion record of one plan: the files that the plan marked for deletion, and the metadata to restore them.

    Paths are relative to the table's root, or absolute below an external path. Times are epoch ms.

    Attributes:
        trash_id: id of the record.
        action: name of the action.
        table: name of the table.
        plan_hash: hash of the plan.
        created_ms: time of the deletion.
        not_before_ms: time from which a sweep may delete the files.
        snapshots: exact JSON text of the removed snapshots by id (of changelogs for `expire_changelogs`); empty for
            orphans, tags and branches.
        files: files to delete.
        branch: branch of the snapshots.
        metadata: content of metadata files that were already deleted, by path: all files of a branch, or tags,
            changelogs and schemas.
        target: id of the snapshot to which a rollback returned.
        target_written: whether the snapshot ``target`` had expired and was written again.
        came: SHA-256 of the files that a fast-forward wrote in place of deleted files, by path.
    """

    trash_id: str
    action: str
    table: str
    plan_hash: str
    created_ms: int
    not_before_ms: int
    snapshots: Mapping[int, str]
    files: tuple[DeleteItem, ...]
    branch: str = "main"
    metadata: Mapping[str, bytes] = field(default_factory=dict)
    target: int | None = None
    target_written: bool = False
    came: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        # A grace of thousands of years would end after the last time that can be read back from a record.
        object.__setattr__(self, "not_before_ms", min(self.not_before_ms, LATEST_MS))

    @property
    def size(self) -> int:
        """Bytes that a sweep frees."""
        return sum(file.size for file in self.files)

    def snapshot_files(self) -> Iterator[tuple[str, bytes]]:
        """Yield (path, content) of the ``metadata`` files that contain a snapshot: snapshots, tags and changelogs."""
        for path, data in sorted(self.metadata.items()):
            place = PurePosixPath(path)
            if place.parent.name in _SAY_SNAPSHOTS and place.name.startswith(f"{place.parent.name}-"):
                yield path, data

    def to_json(self) -> bytes:
        """Return the content of the record file."""
        value = {
            "version": _VERSION,
            "trash_id": self.trash_id,
            "action": self.action,
            "table": self.table,
            "plan_hash": self.plan_hash,
            "created_ms": self.created_ms,
            "not_before_ms": self.not_before_ms,
            "snapshots": [{"id": number, "json": text} for number, text in sorted(self.snapshots.items())],
            "files": [{"path": f.path, "kind": f.kind, "size": f.size, "reason": f.reason} for f in self.files],
        }
        if self.branch != "main":
            value["branch"] = self.branch
        if self.metadata:
            value["metadata"] = [{"path": path, **_readable(data)} for path, data in sorted(self.metadata.items())]
        if self.target is not None:
            value |= {"target": self.target, "target_written": self.target_written}
        if self.came:
            value["came"] = dict(sorted(self.came.items()))
        return json.dumps(value, indent=1, ensure_ascii=False).encode()

    @staticmethod
    def from_json(data: bytes, path: str) -> TrashRecord:
        """Parse a record file.

        Args:
            data: content of the file.
            path: path of the file, for errors.

        Raises:
            CorruptFile: the content is not a deletion record.
        """
        try:
            value: dict[str, Any] = parse_json(data, unique=True)
            if value["version"] != _VERSION:
                raise CorruptFile(path, f"deletion record of version {value['version']!r}")
            trash_id = str(value["trash_id"])
            return TrashRecord(
                trash_id=trash_id,
                action=str(value["action"]),
                table=str(value["table"]),
                plan_hash=str(value["plan_hash"]),
                created_ms=time_of(value["created_ms"]),
                not_before_ms=time_of(value["not_before_ms"]),
                snapshots={int(item["id"]): str(item["json"]) for item in value["snapshots"]},
                files=tuple(
                    DeleteItem(str(f["path"]), str(f["kind"]), int(f["size"]), str(f["reason"]), trash_id)
                    for f in value["files"]
                ),
                branch=str(value.get("branch", "main")),
                metadata={
                    str(entry["path"]): entry["text"].encode() if "text" in entry else base64.b64decode(entry["base64"])
                    for entry in value.get("metadata", ())
                },
                target=None if value.get("target") is None else int(value["target"]),
                target_written=bool(value.get("target_written")),
                came={str(path): str(digest) for path, digest in dict(value.get("came") or {}).items()},
            )
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise CorruptFile(path, f"no deletion record: {error!r}") from error


def _readable(data: bytes) -> dict[str, str]:
    """Return a file's content as JSON with the key "text", or "base64" if the content is not UTF-8 text."""
    try:
        return {"text": data.decode()}
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def record_path(store: TableStore, trash_id: str) -> str:
    """Return the path of a record.

    Args:
        store: the table.
        trash_id: id of the record.

    Raises:
        InvalidData: the id is not a plain file name.
    """
    return f"{store.trash_dir}/{check_name(trash_id + _RECORD)}"


def _claim_path(store: TableStore, trash_id: str) -> str:
    return f"{store.trash_dir}/{check_name(trash_id + _CLAIM)}"


def write_record(store: TableStore, record: TrashRecord) -> None:
    """Publish a record; publishing the same record again succeeds (a retry).

    Args:
        store: the table.
        record: record to publish.

    Raises:
        CorruptFile: a record with this id and a different content exists.
    """
    path, data = record_path(store, record.trash_id), record.to_json()
    if not store.file_io.write_exclusive(path, data) and store.file_io.read_bytes(path) != data:
        raise CorruptFile(path, "a deletion record of that id is already there")


def write_own_record(store: TableStore, record: TrashRecord) -> TrashRecord:
    """Publish a record under an id that no concurrent process uses, so that the writer may remove the record.

    If a process that applies the same plan in the same millisecond has taken the id, the record gets a new id.

    Args:
        store: the table.
        record: record to publish.

    Returns:
        The published record.
    """
    own = record
    while not store.file_io.write_exclusive(record_path(store, own.trash_id), own.to_json()):
        own = replace(record, trash_id=f"{record.trash_id}-{uuid.uuid4().hex[:8]}")
    return own


@dataclass(frozen=True)
class Trash:
    """Deletion records of a table.

    The files of an unreadable record are neither swept nor restored. Readable records are swept even if another record
    is unreadable: its snapshots need no file of an older record, and it could not be restored after a newer record was
    swept anyway.

    Attributes:
        records: all readable records, oldest first.
        unreadable: errors of the unreadable records, each with the path of the file.
    """

    records: tuple[TrashRecord, ...]
    unreadable: tuple[CorruptFile, ...] = ()


def read_trash(store: TableStore) -> Trash:
    """Return the deletion records of the table, and the errors of unreadable records.

    Args:
        store: the table.
    """
    own = cache(partial(OwnFiles.of, store))  # read once for all records, and only if there are records
    names = sorted(status.name for status in store.file_io.list_dir(store.trash_dir) if status.name.endswith(_RECORD))
    records: list[TrashRecord] = []
    unreadable: list[CorruptFile] = []
    for name in names:
        try:
            record = _read(store, f"{store.trash_dir}/{name}", own)
        except CorruptFile as error:
            unreadable.append(error)
            continue
        records += [] if record is None else [record]
    return Trash(tuple(sorted(records, key=lambda r: (r.created_ms, r.trash_id))), tuple(unreadable))


def oldest_record(store: TableStore) -> TrashRecord | None:
    """Return the oldest readable deletion record, by the times in the file names; None without one.

    Args:
        store: the table.
    """
    listed = store.file_io.list_dir(store.trash_dir)
    names = [status.name for status in listed if status.name.endswith(_RECORD)]
    for name in sorted(names, key=_time_in_name):
        try:
            record = _read(store, f"{store.trash_dir}/{name}", cache(partial(OwnFiles.of, store)))
        except CorruptFile:
            continue
        if record is not None:
            return record
    return None


def _time_in_name(name: str) -> tuple[int, str]:
    number = name.removesuffix(_RECORD).rpartition("-")[2]
    return (int(number) if number.isascii() and number.isdigit() else 0, name)


def _read(store: TableStore, path: str, own: Callable[[], OwnFiles]) -> TrashRecord | None:
    try:
        record = TrashRecord.from_json(store.file_io.read_bytes(path), path)
    except FileNotFoundError:
        # Swept or restored between the listing and this read.
        return None
    if record.files:
        own().require((file.path for file in record.files), path)
    return record


def find_record(store: TableStore, trash_id: str) -> TrashRecord:
    """Return the record with an id.

    Args:
        store: the table.
        trash_id: id of the record.

    Raises:
        InvalidOption: the record does not exist; it never existed, or was swept or restored.
        CorruptFile: the record cannot be read, or names a file that is not a deletable file of this table.
    """
    try:
        record = _read(store, record_path(store, trash_id), partial(OwnFiles.of, store))
    except InvalidData:  # no file can have such a name
        record = None
    if record is None:
        known = ", ".join(r.trash_id for r in read_trash(store).records) or "nothing: the trash is empty"
        raise InvalidOption("trash_id", trash_id, known, store.name)
    return record


def claim(store: TableStore, trash_id: str, purpose: str) -> bool:
    """Reserve a deletion record for a sweep or for a restore, by writing its claim file.

    The first claim decides whether the record is swept or restored. A later call for the same purpose succeeds, so that
    an interrupted sweep or restore can be continued.

    Args:
        store: the table.
        trash_id: id of the record.
        purpose: `SWEEP` or `RESTORE`.

    Returns:
        Whether the record is claimed for this purpose.
    """
    path = _claim_path(store, trash_id)
    if store.file_io.write_exclusive(path, purpose.encode()):
        return True
    return read_claim(store, trash_id) == purpose


def read_claim(store: TableStore, trash_id: str) -> str | None:
    """Return the purpose for which a record is claimed, None if the record is not claimed.

    Args:
        store: the table.
        trash_id: id of the record.
    """
    try:
        return store.file_io.read_bytes(_claim_path(store, trash_id)).decode(errors="replace")
    except FileNotFoundError:
        return None


def release(store: TableStore, trash_id: str) -> None:
    """Delete the claim of a record and keep the record.

    Args:
        store: the table.
        trash_id: id of the record.
    """
    store.delete(_claim_path(store, trash_id))


def forget(store: TableStore, trash_id: str) -> None:
    """Delete a record and then its claim, in this order, so that a finished record cannot be claimed again.

    Args:
        store: the table.
        trash_id: id of the record.
    """
    store.delete(record_path(store, trash_id))
    store.delete(_claim_path(store, trash_id))


def find_stray_claims(store: TableStore) -> list[str]:
    """Return the ids of claims without a record, which an interrupted :func:`forget` leaves.

    Args:
        store: the table.
    """
    names = {status.name for status in store.file_io.list_dir(store.trash_dir)}
    ids = [name.removesuffix(_CLAIM) for name in sorted(names) if name.endswith(_CLAIM)]
    return [trash_id for trash_id in ids if trash_id + _RECORD not in names]
