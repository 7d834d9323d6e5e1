"""Iceberg metadata written by hand, as far as Dredge's maintenance reads it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lsm_core.iceberg.manifest_files import encode_manifest_list
from lsm_core.iceberg.state import COMMIT_IDENTITY, commit_identity
from lsm_core.metadata import TableStore, snapshots

ON = {"metadata.iceberg.storage": "table-location"}
"""Options of a table whose Iceberg metadata is beside its data."""


def write_metadata(
    folder: Path, ids: Sequence[int], refs: Sequence[int] = (), identities: Mapping[int, str] | None = None
) -> None:
    """Write metadata that names the snapshots ``ids``, of which the newest is current.

    Args:
        folder: folder of the metadata, which is created.
        ids: ids of the snapshots.
        refs: ids of snapshots that a tag names.
        identities: identity of the commit of some snapshots, by id.
    """
    folder.mkdir(parents=True, exist_ok=True)
    no_manifests = encode_manifest_list([], str(folder), legacy_names=False, has_row_ids=False, codec="null")
    entries: list[dict[str, Any]] = []
    for number in ids:
        (folder / f"snap-{number}.avro").write_bytes(no_manifests)
        identity = (identities or {}).get(number)
        summary = {} if identity is None else {COMMIT_IDENTITY: identity}
        entry = {"snapshot-id": number, "timestamp-ms": number, "manifest-list": f"{folder}/snap-{number}.avro"}
        entries.append({**entry, "summary": summary})
    members = {"format-version": 2, "table-uuid": "u", "last-updated-ms": 7_000, "snapshots": entries}
    members |= {"current-snapshot-id": max(ids), "refs": {f"t{n}": {"snapshot-id": n} for n in refs}}
    (folder / f"v{max(ids)}.metadata.json").write_text(json.dumps(members))
    (folder / "version-hint.text").write_text(str(max(ids)))


def publish(store: TableStore, *ids: int) -> TableStore:
    """Write metadata of a table beside its data, for the newest or the given snapshots; return the table as published."""
    newest = snapshots.latest(store)
    assert newest is not None
    chosen = ids or (newest.id,)
    known = {number: snapshots.try_read(store, number) for number in chosen}
    identities = {number: commit_identity(snapshot) for number, snapshot in known.items() if snapshot is not None}
    write_metadata(Path(store.root) / "metadata", chosen, identities=identities)
    return store.copy(ON)
