"""Merge of the versions of keys, on columns: one order, bounded windows, merge functions, digests.

No I/O, clock or random.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lsm_core.lazy_names import lazy_names

if TYPE_CHECKING:
    from lsm_core.merge.changelog import ChangelogMerger as ChangelogMerger
    from lsm_core.merge.changelog import ChangelogRules as ChangelogRules
    from lsm_core.merge.counters import DELETE_AT_BOTTOM as DELETE_AT_BOTTOM
    from lsm_core.merge.counters import EXPIRED as EXPIRED
    from lsm_core.merge.counters import IGNORED_DELETE as IGNORED_DELETE
    from lsm_core.merge.counters import OLDER_VERSION as OLDER_VERSION
    from lsm_core.merge.counters import MergeCounters as MergeCounters
    from lsm_core.merge.digest import Digest as Digest
    from lsm_core.merge.engines.deduplicate import Deduplicate as Deduplicate
    from lsm_core.merge.engines.expire_rows import RowExpiry as RowExpiry
    from lsm_core.merge.engines.refusals import Refusals as Refusals
    from lsm_core.merge.function import FoldFunction as FoldFunction
    from lsm_core.merge.function import MergeFunction as MergeFunction
    from lsm_core.merge.function import PickFunction as PickFunction
    from lsm_core.merge.function import merge_function as merge_function
    from lsm_core.merge.functions import AggregateFunction as AggregateFunction
    from lsm_core.merge.functions import aggregate_function as aggregate_function
    from lsm_core.merge.keys import ByteKeys as ByteKeys
    from lsm_core.merge.keys import IntKeys as IntKeys
    from lsm_core.merge.keys import NormalisedKeys as NormalisedKeys
    from lsm_core.merge.order_free import OrderVerdict as OrderVerdict
    from lsm_core.merge.sort_key import KeySpec as KeySpec
    from lsm_core.merge.sort_key import key_bytes as key_bytes
    from lsm_core.merge.sort_key import normalise_keys as normalise_keys
    from lsm_core.merge.window import RunInput as RunInput
    from lsm_core.merge.window import UnsortedInput as UnsortedInput
    from lsm_core.merge.window import merge_runs as merge_runs
    from lsm_core.merge.window import merge_streams as merge_streams
    from lsm_core.merge.window import merge_unsorted as merge_unsorted

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "changelog": (
            "ChangelogMerger",
            "ChangelogRules",
        ),
        "counters": (
            "DELETE_AT_BOTTOM",
            "EXPIRED",
            "IGNORED_DELETE",
            "OLDER_VERSION",
            "MergeCounters",
        ),
        "digest": ("Digest",),
        "engines.deduplicate": ("Deduplicate",),
        "engines.expire_rows": ("RowExpiry",),
        "engines.refusals": ("Refusals",),
        "function": (
            "FoldFunction",
            "MergeFunction",
            "PickFunction",
            "merge_function",
        ),
        "functions": (
            "AggregateFunction",
            "aggregate_function",
        ),
        "keys": (
            "ByteKeys",
            "IntKeys",
            "NormalisedKeys",
        ),
        "order_free": ("OrderVerdict",),
        "sort_key": (
            "KeySpec",
            "key_bytes",
            "normalise_keys",
        ),
        "window": (
            "RunInput",
            "UnsortedInput",
            "merge_runs",
            "merge_streams",
            "merge_unsorted",
        ),
    },
)
