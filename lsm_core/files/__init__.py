"""Data files: readers and writers of key-value and append files, rolling, and spilling to the local disk."""

from __future__ import annotations

from lsm_core.files.append_reader import open_append
from lsm_core.files.append_writer import AppendFileWriter
from lsm_core.files.kv_reader import kv_read_schema, open_kv
from lsm_core.files.kv_writer import KeyValueFileWriter
from lsm_core.files.spill import SpilledRun, SpillSpace

__all__ = [
    "AppendFileWriter",
    "KeyValueFileWriter",
    "SpillSpace",
    "SpilledRun",
    "kv_read_schema",
    "open_append",
    "open_kv",
]
