"""Writing: rows to buckets, a bounded buffer, sorted and merged level-0 files (or append files), commit messages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lsm_core.lazy_names import lazy_names

if TYPE_CHECKING:
    from lsm_core.write.background import Compactor as Compactor
    from lsm_core.write.incoming_rows import Rows as Rows
    from lsm_core.write.key_value import settle_shared_buckets as settle_shared_buckets
    from lsm_core.write.restore import BucketHistory as BucketHistory
    from lsm_core.write.stream_write import StreamTableWrite as StreamTableWrite
    from lsm_core.write.table_write import RoutedRows as RoutedRows
    from lsm_core.write.table_write import TableWrite as TableWrite

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "background": ("Compactor",),
        "incoming_rows": ("Rows",),
        "key_value": ("settle_shared_buckets",),
        "restore": ("BucketHistory",),
        "stream_write": ("StreamTableWrite",),
        "table_write": (
            "RoutedRows",
            "TableWrite",
        ),
    },
)
