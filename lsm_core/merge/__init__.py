"""Merging versions of keys as columns: one order, bounded windows, merge functions, digests. No I/O, no clock, no random."""

from __future__ import annotations

from lsm_core.merge.changelog import ChangelogFunction, changelog_function
from lsm_core.merge.counters import DELETE_AT_BOTTOM, EXPIRED, IGNORED_DELETE, OLDER_VERSION, MergeCounters
from lsm_core.merge.digest import Digest, digest
from lsm_core.merge.engines.deduplicate import Deduplicate
from lsm_core.merge.engines.expire_rows import Living, RowExpiry
from lsm_core.merge.engines.refusals import Refusals
from lsm_core.merge.function import FoldFunction, MergeFunction, PickFunction, merge_function
from lsm_core.merge.functions import AggregateFunction, aggregate_function
from lsm_core.merge.keys import ByteKeys, IntKeys, NormalisedKeys
from lsm_core.merge.order_free import Verdict, order_free
from lsm_core.merge.sort_key import KeySpec, key_bytes, normalise_keys
from lsm_core.merge.window import RunInput, UnsortedInput, merge_runs, merge_streams, merge_unsorted

__all__ = [
    "DELETE_AT_BOTTOM",
    "EXPIRED",
    "IGNORED_DELETE",
    "OLDER_VERSION",
    "AggregateFunction",
    "ByteKeys",
    "ChangelogFunction",
    "Deduplicate",
    "Digest",
    "FoldFunction",
    "IntKeys",
    "KeySpec",
    "Living",
    "MergeCounters",
    "MergeFunction",
    "NormalisedKeys",
    "PickFunction",
    "Refusals",
    "RowExpiry",
    "RunInput",
    "UnsortedInput",
    "Verdict",
    "aggregate_function",
    "changelog_function",
    "digest",
    "key_bytes",
    "merge_function",
    "merge_runs",
    "merge_streams",
    "merge_unsorted",
    "normalise_keys",
    "order_free",
]
