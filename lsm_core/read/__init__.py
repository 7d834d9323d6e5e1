"""Reading: plan a scan of one snapshot, prune it, and stream merged rows; compactions share the merging streams."""

from __future__ import annotations

from lsm_core.read.lookup import lookup
from lsm_core.read.merge_read import read_bucket_merged
from lsm_core.read.predicate import Predicate, parse_filter
from lsm_core.read.scan import Scan, plan_scan, read_split, to_arrow, to_batches
from lsm_core.read.splits import Split
from lsm_core.read.versions import Version, resolve

__all__ = [
    "Predicate",
    "Scan",
    "Split",
    "Version",
    "lookup",
    "parse_filter",
    "plan_scan",
    "read_bucket_merged",
    "read_split",
    "resolve",
    "to_arrow",
    "to_batches",
]
