"""Decoding large manifests with DataFusion's Avro reader, many times faster than going record by record."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING

import pyarrow as pa

from lsm_core.errors import CorruptFile
from lsm_core.format.avro.metadata_file import with_record_root
from lsm_core.format.manifest import from_avro_table

if TYPE_CHECKING:
    from datafusion import SessionContext

_LOG = logging.getLogger(__name__)


def fast_decode(data: bytes, path: str) -> pa.Table | None:
    """The entries (`ENTRY_SCHEMA`) of a manifest's bytes; None where DataFusion cannot read them (the log says why).

    A file cut short may come out with rows missing and no error, so the caller must compare the number of rows with what
    the manifest list recorded. Raises :class:`CorruptFile` naming ``path`` for a broken header.
    """
    if not hasattr(os, "memfd_create"):  # Linux has it
        return None
    readable, wrapped = with_record_root(data, path)
    # DataFusion reads files only, and takes a table's own path as a pattern and an address; memory has a plain one.
    memory = os.memfd_create("manifest")
    try:
        with os.fdopen(os.dup(memory), "wb") as out:
            out.write(readable)
        table = _context().read_avro(f"/proc/self/fd/{memory}", file_extension="").to_arrow_table()
        if wrapped:
            entries = table.column("entry")
            if entries.null_count:
                raise CorruptFile(path, "a manifest entry is null")
            table = pa.Table.from_batches([pa.RecordBatch.from_struct_array(part) for part in entries.chunks])
        return from_avro_table(table, path)
    except BaseException as error:  # a panic inside the library arrives as a BaseException
        if isinstance(error, (KeyboardInterrupt, SystemExit, GeneratorExit, MemoryError)):
            raise
        _LOG.warning("DataFusion cannot read manifest %s, so it is decoded record by record: %s", path, error)
        return None
    finally:
        os.close(memory)


def _context() -> SessionContext:
    from datafusion import SessionConfig, SessionContext  # slow to import, and most tables are small

    # One partition keeps the order of the records, on which the merge of adds and deletes depends.
    return SessionContext(SessionConfig().with_target_partitions(1).with_batch_size(65_536))
