# Public names of the package: `__init__.py` imports each on first use, type checkers read them here.
from lsm_core.files.reader import kv_read_schema as kv_read_schema
from lsm_core.files.reader import open_append as open_append
from lsm_core.files.reader import open_kv as open_kv
from lsm_core.files.spill import SpilledRun as SpilledRun
from lsm_core.files.spill import SpillSpace as SpillSpace
from lsm_core.files.writer import AppendFileWriter as AppendFileWriter
from lsm_core.files.writer import KeyValueFileWriter as KeyValueFileWriter
from lsm_core.files.writer import changelog_files_of as changelog_files_of
