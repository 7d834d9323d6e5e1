"""Binary and text encodings of the table format: rows, hashes, schemas, snapshots, manifests, statistics, paths.

No I/O, no clock: functions convert bytes and texts to values and back, and never open a file. `lsm_core.metadata` reads
and writes the files. Begin with `snapshot` and `manifest`, beside docs/format.md.
"""

from __future__ import annotations

from lsm_core.format.binary_row import EMPTY_ROW, binary_row, decode_row, decode_rows, encode_row, encode_rows
from lsm_core.format.hashing import bucket_of, hash_rows
from lsm_core.format.manifest import ENTRY_SCHEMA, DataFileMeta, ManifestEntry, entries_to_table, table_to_entries
from lsm_core.format.schema import DataField, TableSchema
from lsm_core.format.snapshot import CommitKind, Snapshot
from lsm_core.format.stats import EMPTY_STATS, SimpleStats
