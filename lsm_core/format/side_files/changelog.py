"""Long-lived changelogs: what is left of a snapshot that expired while its changelog stays (format.md 12, Java `Changelog`)."""

from __future__ import annotations

from lsm_core.format.snapshot import Snapshot


def decode_changelog(data: bytes, path: str) -> Snapshot:
    """The expired snapshot; raises :class:`lsm_core.errors.CorruptFile` naming ``path``.

    Its base and delta lists are names only: unless the table has no changelog producer, expiry deleted those files.
    """
    return Snapshot.from_json(data, path)


def encode_changelog(snapshot: Snapshot) -> bytes:
    """The file that keeps the changelog of ``snapshot`` reachable: the snapshot itself, member for member."""
    return snapshot.to_json()


__all__ = ["decode_changelog", "encode_changelog"]
