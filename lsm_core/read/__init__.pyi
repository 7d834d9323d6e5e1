# Public names of the package: `__init__.py` imports each on first use, type checkers read them here.
from lsm_core.read.merge_read import read_bucket_merged as read_bucket_merged
from lsm_core.read.predicate import Predicate as Predicate
from lsm_core.read.predicate import parse_filter as parse_filter
from lsm_core.read.scan import Scan as Scan
from lsm_core.read.scan import plan_scan as plan_scan
from lsm_core.read.scan import read_split as read_split
from lsm_core.read.scan import to_arrow as to_arrow
from lsm_core.read.scan import to_batches as to_batches
from lsm_core.read.splits import Split as Split
from lsm_core.read.table_versions import Version as Version
from lsm_core.read.table_versions import resolve as resolve
