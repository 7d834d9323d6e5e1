"""Which tables batch reads see only as far as they were compacted; apart from the scan, since health asks without reading rows."""

from __future__ import annotations

from lsm_core.metadata.store import TableStore


def compacted_only(store: TableStore) -> bool:
    """Whether batch reads see only what was compacted: there every key lies once, whatever the level of its file."""
    return bool(store.options.get("deletion-vectors.enabled")) or store.options.merge_engine == "first-row"
