"""What single options accept beyond their type: values of enums, lowest and highest numbers. Lists only, apart from the code that reads them."""

from __future__ import annotations

from typing import Final

_INT_MAX: Final = 2**31 - 1

# Enums of Paimon 1.4. Enums that are younger, or that newer versions may widen without our reading them, are not listed: other
# engines' values are theirs to check.
ENUMS: Final[dict[str, tuple[str, ...]]] = {
    "batch-scan-mode": ("none", "compact"),
    "bucket-function.type": ("default", "mod", "hive"),
    "changelog-producer": ("none", "input", "full-compaction", "lookup"),
    "clustering.incremental.mode": ("global-sort", "local-sort"),
    "consumer.mode": ("exactly-once", "at-least-once"),
    "data-file.external-paths.strategy": ("none", "specific-fs", "round-robin", "entropy-inject", "weight-robin"),
    "dredge.compaction.order-sensitive": ("closed", "as-paimon"),
    "dredge.delete-mode": ("two-phase", "direct"),
    "format-table.implementation": ("paimon", "engine"),
    "incremental-between-scan-mode": ("auto", "delta", "changelog", "diff"),
    "log.changelog-mode": ("auto", "all", "upsert"),
    "log.consistency": ("transactional", "eventual"),
    "lookup-compact": ("radical", "gentle"),
    "materialized-table.interval-freshness.time-unit": ("second", "minute", "hour", "day"),
    "materialized-table.refresh-mode": ("continuous", "full", "automatic"),
    "materialized-table.refresh-status": ("initializing", "activated", "suspended"),
    "merge-engine": ("deduplicate", "partial-update", "aggregation", "first-row"),
    "metastore.tag-to-partition.preview": ("none", "process-time", "watermark", "batch"),
    "partition.sink-strategy": ("none", "hash"),
    "scan.mode": (
        "default",
        "latest-full",
        "full",
        "latest",
        "compacted-full",
        "from-timestamp",
        "from-creation-timestamp",
        "from-file-creation-time",
        "from-snapshot",
        "from-snapshot-full",
        "incremental",
    ),
    "sequence.field.sort-order": ("ascending", "descending"),
    "snapshot.expire.execution-mode": ("sync", "async"),
    "sort-compaction.range-strategy": ("size", "quantity"),
    "sort-engine": ("min-heap", "loser-tree"),
    "stream-scan-mode": ("none", "compact-bucket-table", "file-monitor"),
    "tag.automatic-creation": ("none", "process-time", "watermark", "batch"),
    "tag.creation-period": ("daily", "hourly", "two-hours"),
    # Java spells these with underscores, its documentation with dashes.
    "tag.period-formatter": (
        "with_dashes",
        "without_dashes",
        "without_dashes_and_spaces",
        "with-dashes",
        "without-dashes",
        "without-dashes-and-spaces",
    ),
    "type": ("table", "format-table", "materialized-table", "object-table", "lance-table", "iceberg-table"),
    "write.sequence-number-init-mode": ("scan", "snapshot"),
}

# Lowest and highest value that makes sense; Java often fails only later, in the middle of a job. Numbers that are not listed, such as
# ratios and triggers below 0, mean to Dredge what they mean to Java.
RANGES: Final[dict[str, tuple[float, float]]] = {
    "changelog.num-retained.max": (1, _INT_MAX),
    "changelog.num-retained.min": (1, _INT_MAX),
    "compaction.max.file-num": (1, _INT_MAX),
    "compaction.offpeak.end.hour": (-1, 24),
    "compaction.offpeak.start.hour": (-1, 23),
    "compaction.small-file-ratio": (0, 1),
    "dredge.read.threads": (1, 1024),
    "dynamic-bucket.target-row-num": (1, 2**63 - 1),
    "full-compaction.delta-commits": (1, _INT_MAX),
    "num-levels": (2, 1000),
    "num-sorted-run.compaction-trigger": (1, _INT_MAX),
    "snapshot.expire.limit": (0, _INT_MAX),
    "snapshot.num-retained.max": (1, _INT_MAX),
    "snapshot.num-retained.min": (1, _INT_MAX),
    "sort-compaction.local-sample.magnification": (1, _INT_MAX),
    "sort-spill-threshold": (2, _INT_MAX),
    "target-file-row-num": (1, 2**63 - 1),
    "zorder.var-length-contribution": (1, 1024),
}
# The same for names with a free part, by how they end.
_FREE_RANGES: Final[dict[str, tuple[float, float]]] = {
    ".count-limit": (1, _INT_MAX),
    ".fpp": (1e-9, 1 - 1e-9),
    ".items": (1, _INT_MAX),
}

# Sizes that must hold at least one byte, or the work that they bound could never go on.
POSITIVE_SIZES: Final = frozenset(
    {
        "dredge.compaction.piece-size",
        "dredge.merge-budget",
        "manifest.target-file-size",
        "target-file-size",
        "write-buffer-size",
    }
)

# Sizes that Java keeps in an int, as a buffer of at least one byte.
BUFFER_SIZES: Final = frozenset({"blob.copy-buffer-size"})


def number_range(name: str, low: float, high: float) -> tuple[float, float]:
    """The numbers that ``name`` accepts; its type's own range, from ``low`` to ``high``, unless it is listed."""
    free = next((limits for end, limits in _FREE_RANGES.items() if name.endswith(end)), (low, high))
    return RANGES.get(name, free)
