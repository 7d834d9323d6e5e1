"""File access: the FileIO protocol, local disks, object stores, fault injection, tracing and path checks.

The package handles paths and bytes, and does not depend on the table format. All further packages access files through
`FileIO`, so that tests can let each step fail. Begin with `file_io`.
"""

from __future__ import annotations

from lsm_core.storage.faults import FaultyFileIO, InjectedFault
from lsm_core.storage.file_io import FileIO, FileStatus, Guarantee, Kept, OutputFile, delete_files, is_object_store
from lsm_core.storage.local_file_io import LocalFileIO, LocalOutputFile
from lsm_core.storage.remote_input import ahead, done_in_turn
from lsm_core.storage.safe_paths import (
    PathBelow,
    check_name,
    inside,
    inside_really,
    is_link,
    place_of,
    same_place,
    unify_scheme,
)
from lsm_core.storage.store_keys import KeySource, StoreKeys, parse_keys
from lsm_core.storage.urls import file_io_for, key_source, storage_options
