"""Reading of tables: plan a scan of one snapshot, prune it, and stream merged rows.

Compactions use the same merging streams.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lsm_core.lazy_names import lazy_names

if TYPE_CHECKING:
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

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "merge_read": ("read_bucket_merged",),
        "predicate": (
            "Predicate",
            "parse_filter",
        ),
        "scan": (
            "Scan",
            "plan_scan",
            "read_split",
            "to_arrow",
            "to_batches",
        ),
        "splits": ("Split",),
        "table_versions": (
            "Version",
            "resolve",
        ),
    },
)
