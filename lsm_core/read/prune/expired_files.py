"""Files with rows whose record-level lifetime is over, by their statistics alone.

Source: ``RecordLevelExpire.isExpireFile``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from lsm_core.arrays import arrow_array, numpy_array
from lsm_core.format.manifest import DataFileMeta, ManifestEntry, entries_to_table
from lsm_core.merge import RowExpiry
from lsm_core.merge.engines.expire_rows import Living
from lsm_core.metadata.store import TableStore
from lsm_core.read.prune.file_pruning import column_bounds

_NONE: frozenset[str] = frozenset()


@dataclass(frozen=True)
class ExpiredFiles:
    """Names of files with expired rows; empty for tables whose rows do not expire.

    Attributes:
        known: files whose smallest time is expired, so at least one row is; a full compaction rewrites these.
        possible: these, and files without statistics of the time column.
    """

    known: frozenset[str] = _NONE
    possible: frozenset[str] = _NONE


def expiry_of(store: TableStore) -> RowExpiry | None:
    """Return the expiry rule of the table's rows, or None if they never expire.

    Raises:
        InvalidOption: an option of the expiry cannot be used.
    """
    if store.options.get("record-level.expire-time") is None or not store.has_primary_key:
        return None
    return RowExpiry.of(store.schema, store.options.raw, store.name)


def expired_files(store: TableStore, entries: pa.Table, now_ms: int) -> ExpiredFiles:
    """Return the files of ``entries`` with expired rows.

    Args:
        store: the table.
        entries: files (`ENTRY_SCHEMA`).
        now_ms: time of the check (epoch ms).

    Raises:
        InvalidOption: an option of the expiry cannot be used.
    """
    expiry = expiry_of(store)
    if expiry is None or not entries.num_rows:
        return ExpiredFiles()
    bounds = column_bounds(store, entries, [expiry.field])[expiry.field]
    expired = expiry.expired(bounds.lows, now_ms)
    unknown = numpy_array(bounds.lows.is_null()) & ~bounds.only_nulls
    names = entries.column("file_name")
    return ExpiredFiles(
        *(frozenset(names.filter(arrow_array(mask)).to_pylist()) for mask in (expired, expired | unknown))
    )


def living_at(store: TableStore, now_ms: int | None) -> Living | None:
    """Return the function that keeps the rows that are not expired at ``now_ms`` (epoch ms).

    Returns:
        The function; None where rows do not expire, or for ``now_ms`` None.
    """
    expiry = None if now_ms is None else expiry_of(store)
    return None if expiry is None or now_ms is None else expiry.living(now_ms)


def expired_among(store: TableStore, files: Sequence[DataFileMeta], now_ms: int) -> ExpiredFiles:
    """Return :func:`expired_files` of files of one bucket."""
    return expired_files(store, entries_to_table([ManifestEntry(0, b"", 0, 0, file) for file in files]), now_ms)
