"""Writing: rows to buckets, a bounded buffer, sorted and merged level-0 files (or append files), commit messages."""

from __future__ import annotations

from lsm_core.write.background import Compactor
from lsm_core.write.incoming_rows import Rows
from lsm_core.write.restore import BucketHistory
from lsm_core.write.stream_write import StreamTableWrite
from lsm_core.write.table_write import RoutedRows, TableWrite

__all__ = ["BucketHistory", "Compactor", "RoutedRows", "Rows", "StreamTableWrite", "TableWrite"]
