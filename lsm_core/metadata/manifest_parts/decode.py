"""Decoding large manifests with DataFusion's Avro reader, many times faster than going record by record."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from lsm_core.format.manifest import from_avro_table

if TYPE_CHECKING:
    from datafusion import SessionContext

# DataFusion takes the path as a pattern and as an address, so anything special in it goes the slow way.
_SPECIAL = frozenset("*?[]{}!\\%#")


def fast_decode(path: str) -> pa.Table | None:
    """Return the entries (`ENTRY_SCHEMA`) of a local manifest, or None when this way is not open: then decode the bytes.

    A file cut short may come out with rows missing and no error, so the caller must compare the number of rows with what
    the manifest list recorded.
    """
    if not _SPECIAL.isdisjoint(path):
        return None
    try:
        return from_avro_table(_context().read_avro(path, file_extension="").to_arrow_table(), path)
    except BaseException as error:  # a panic inside the library arrives as a BaseException
        if isinstance(error, (KeyboardInterrupt, SystemExit, GeneratorExit, MemoryError)):
            raise
        return None


def _context() -> SessionContext:
    from datafusion import SessionConfig, SessionContext  # slow to import, and most tables are small

    # One partition keeps the order of the records, on which the merge of adds and deletes depends.
    return SessionContext(SessionConfig().with_target_partitions(1).with_batch_size(65_536))
