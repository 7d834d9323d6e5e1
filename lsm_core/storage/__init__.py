"""Where bytes live: the FileIO protocol, local disks, fault injection, tracing and guards for names."""

from __future__ import annotations

from lsm_core.storage.faults import FaultyFileIO, InjectedFault
from lsm_core.storage.file_io import FileIO, FileStatus, Guarantee, OutputFile
from lsm_core.storage.kept import Kept
from lsm_core.storage.local_file_io import LocalFileIO, LocalOutputFile
from lsm_core.storage.safe_paths import check_name, inside, inside_really, is_link, same_place
from lsm_core.storage.urls import file_io_for

__all__ = [
    "FaultyFileIO",
    "FileIO",
    "FileStatus",
    "Guarantee",
    "InjectedFault",
    "Kept",
    "LocalFileIO",
    "LocalOutputFile",
    "OutputFile",
    "check_name",
    "file_io_for",
    "inside",
    "inside_really",
    "is_link",
    "same_place",
]
