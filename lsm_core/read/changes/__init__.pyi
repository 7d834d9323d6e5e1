# Public names of the package: `__init__.py` imports each on first use, type checkers read them here.
from lsm_core.read.changes.changed_rows import ROW_KIND as ROW_KIND
from lsm_core.read.changes.changed_rows import Choice as Choice
from lsm_core.read.changes.incremental import incremental_table as incremental_table
from lsm_core.read.changes.incremental import span_parts as span_parts
from lsm_core.read.changes.incremental import span_values as span_values
from lsm_core.read.changes.spans import Span as Span
from lsm_core.read.changes.spans import span_between as span_between
from lsm_core.read.changes.spans import span_of_options as span_of_options
from lsm_core.read.changes.stream import ChangeBatch as ChangeBatch
from lsm_core.read.changes.stream import StreamScan as StreamScan
