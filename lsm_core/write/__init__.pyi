# Public names of the package: `__init__.py` imports each on first use, type checkers read them here.
from lsm_core.write.background import Compactor as Compactor
from lsm_core.write.incoming_rows import Rows as Rows
from lsm_core.write.key_value import settle_shared_buckets as settle_shared_buckets
from lsm_core.write.restore import BucketHistory as BucketHistory
from lsm_core.write.stream_write import StreamTableWrite as StreamTableWrite
from lsm_core.write.table_write import RoutedRows as RoutedRows
from lsm_core.write.table_write import TableWrite as TableWrite
