"""Data files: readers and writers of key-value and append files, rolling, and spilling to the local disk."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lsm_core.lazy_names import lazy_names

if TYPE_CHECKING:
    from lsm_core.files.append_reader import open_append as open_append
    from lsm_core.files.append_writer import AppendFileWriter as AppendFileWriter
    from lsm_core.files.kv_reader import kv_read_schema as kv_read_schema
    from lsm_core.files.kv_reader import open_kv as open_kv
    from lsm_core.files.kv_writer import KeyValueFileWriter as KeyValueFileWriter
    from lsm_core.files.kv_writer import changelog_files_of as changelog_files_of
    from lsm_core.files.spill import SpilledRun as SpilledRun
    from lsm_core.files.spill import SpillSpace as SpillSpace

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "append_reader": ("open_append",),
        "append_writer": ("AppendFileWriter",),
        "kv_reader": (
            "kv_read_schema",
            "open_kv",
        ),
        "kv_writer": ("KeyValueFileWriter", "changelog_files_of"),
        "spill": (
            "SpilledRun",
            "SpillSpace",
        ),
    },
)
