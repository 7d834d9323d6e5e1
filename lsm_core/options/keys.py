"""List of all known options: name, type, default, accepted values and effect, one line per key.

Paimon's keys come first (options.md), then Dredge's keys (``dredge.*``), then families of keys whose names have a
variable part ("fields.<column>.ignore-retract"). The module contains the lists and little code.

Source: ``CoreOptions``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Final

INT_MAX: Final = 2**31 - 1
BOOL, DOUBLE, DURATION, ENUM, INT, LONG, MAP, MEMORY, TEXT = (
    "boolean",
    "double",
    "duration",
    "enum",
    "int",
    "long",
    "map",
    "memory",
    "text",
)


class Effect(StrEnum):
    """Effect of an option in Dredge if it is not set to its default."""

    ACTED_ON = "acted on"
    NOT_ACTED_ON = "accepted, not acted on"
    """Stored for engines other than Dredge and validated by type; setting the option in a table causes a warning."""
    OTHER_KIND = "of another kind"
    """Has an effect only in tables, columns or indexes of a kind that Dredge refuses; handled like `NOT_ACTED_ON`."""
    REFUSED = "refused"
    """Requires a feature that Dredge cannot maintain: reading or writing the table raises `UnsupportedFeature`."""


NOT_ACTED_ON: Final = Effect.NOT_ACTED_ON
OTHER_KIND: Final = Effect.OTHER_KIND
REFUSED: Final = Effect.REFUSED

JVM_TUNING: Final = "a JVM's tuning"
FLINK_ONLY: Final = "Flink only"
REMOVED: Final = "removed from Paimon"
JOBS_ONLY: Final = "jobs of Flink and Spark only"
INTERNAL: Final = "internal to Paimon's jobs"


@dataclass(frozen=True)
class Key:
    """Definition of one option.

    Attributes:
        name: the key.
        kind: type of the option's values.
        default: default as text, or None if unset.
        immutable: whether the option is fixed once snapshots exist.
        aliases: alternative names of the option.
        since: first Paimon version with the option (1.3 is the oldest supported version).
        until: last Paimon version with the option, or None if the newest version has the option.
        effect: effect of the option in Dredge.
        reason: why the option has no effect in Dredge, in a few words. If ``effect`` is `OTHER_KIND`: the kind of
            table, column or index that uses the option. Otherwise "".
    """

    name: str
    kind: str
    default: str | None = None
    immutable: bool = False
    aliases: tuple[str, ...] = ()
    since: str = "1.3"
    until: str | None = None
    effect: Effect = Effect.ACTED_ON
    reason: str = ""


PAIMON_KEYS: Final[tuple[Key, ...]] = (
    Key("add-column-before-partition", BOOL, "false", since="1.4"),
    Key("aggregation.remove-record-on-delete", BOOL, "false", immutable=True),
    Key("alter-column-null-to-not-null.disabled", BOOL, "true"),
    Key("async-file-write", BOOL, "true", effect=NOT_ACTED_ON, reason=JVM_TUNING),
    Key("auto-create", BOOL, "false", effect=NOT_ACTED_ON, reason=FLINK_ONLY),
    Key("batch-scan-mode", ENUM, "none", effect=NOT_ACTED_ON, reason=INTERNAL),
    Key("blob-as-descriptor", BOOL, "false", since="1.4"),
    Key(
        "blob-compaction.enabled",
        BOOL,
        "false",
        since="2.0",
        effect=NOT_ACTED_ON,
        reason="blob files stay as they are, as in 2.0",
    ),
    Key(
        "blob-descriptor-field",
        TEXT,
        None,
        immutable=True,
        aliases=("blob.stored-descriptor-fields",),
        since="1.4",
    ),
    Key(
        "blob-descriptor.source-table",
        TEXT,
        since="2.0",
        effect=OTHER_KIND,
        reason="references of BLOB columns to other files",
    ),
    Key(
        "blob-external-storage-field",
        TEXT,
        None,
        immutable=True,
        since="1.4",
        until="1.4",
        effect=OTHER_KIND,
        reason="references of BLOB columns to other files",
    ),
    Key(
        "blob-external-storage-path",
        TEXT,
        None,
        immutable=True,
        since="1.4",
        until="1.4",
        effect=OTHER_KIND,
        reason="references of BLOB columns to other files",
    ),
    Key("blob-field", TEXT, None, immutable=True, since="1.4"),
    Key(
        "blob-view-field",
        TEXT,
        None,
        immutable=True,
        since="2.0",
        effect=OTHER_KIND,
        reason="references of BLOB columns to other files",
    ),
    Key(
        "blob-view.resolve.enabled",
        BOOL,
        "true",
        since="2.0",
        effect=OTHER_KIND,
        reason="references of BLOB columns to other files",
    ),
    Key(
        "blob-write-null-on-fetch-failure",
        BOOL,
        "false",
        since="2.0",
        effect=OTHER_KIND,
        reason="references of BLOB columns to other files",
    ),
    Key(
        "blob-write-null-on-missing-file",
        BOOL,
        "false",
        since="2.0",
        effect=OTHER_KIND,
        reason="references of BLOB columns to other files",
    ),
    Key("blob.copy-buffer-size", MEMORY, "4 kb", since="2.0", effect=NOT_ACTED_ON, reason=JVM_TUNING),
    Key(
        "blob.split-by-file-size", BOOL, since="1.4", effect=NOT_ACTED_ON, reason="splits hold whole groups of row ids"
    ),
    Key("blob.target-file-size", MEMORY, since="1.4"),
    Key("branch", TEXT, "main"),
    Key("branch-merge.enabled", BOOL, "false", immutable=True, since="2.1"),
    Key("bucket", INT, "-1"),
    Key("bucket-append-ordered", BOOL, "true"),
    Key("bucket-function.type", ENUM, "default", immutable=True),
    Key("bucket-key", TEXT, None, immutable=True),
    Key("cache-page-size", MEMORY, "64 kb", effect=NOT_ACTED_ON, reason=JVM_TUNING),
    Key("chain-table.chain-partition-keys", TEXT, since="1.4", effect=OTHER_KIND, reason="chain tables"),
    Key("chain-table.enabled", BOOL, "false", since="1.4", effect=REFUSED),
    Key("chain-table.split.key-range-enabled", BOOL, "true", since="2.0", effect=OTHER_KIND, reason="chain tables"),
    Key("chain-table.streaming.merge-snapshot", BOOL, "false", since="2.0", effect=OTHER_KIND, reason="chain tables"),
    Key("changelog-file.compression", TEXT),
    Key("changelog-file.format", TEXT),
    Key("changelog-file.prefix", TEXT, "changelog-"),
    Key("changelog-file.stats-mode", TEXT),
    Key("changelog-producer", ENUM, "none"),
    Key("changelog-producer.row-deduplicate", BOOL, "false"),
    Key("changelog-producer.row-deduplicate-ignore-fields", TEXT),
    Key("changelog.num-retained.max", INT),
    Key("changelog.num-retained.min", INT),
    Key("changelog.time-retained", DURATION),
    Key("clustering.columns", TEXT, None, aliases=("sink.clustering.by-columns",)),
    Key("clustering.history-partition.idle-to-full-sort", DURATION),
    Key("clustering.history-partition.limit", INT, "5"),
    Key("clustering.incremental", BOOL, "false"),
    Key("clustering.incremental.mode", ENUM, "global-sort", since="1.4", effect=NOT_ACTED_ON, reason=JOBS_ONLY),
    Key("clustering.incremental.optimize-write", BOOL, "false", since="1.4", effect=NOT_ACTED_ON, reason=FLINK_ONLY),
    Key("clustering.strategy", TEXT, "auto", aliases=("sink.clustering.strategy",)),
    Key("commit.callbacks", TEXT, "", effect=REFUSED),
    Key("commit.discard-duplicate-files", BOOL, "false", since="1.4"),
    Key("commit.force-compact", BOOL, "false"),
    Key("commit.force-create-snapshot", BOOL, "false", effect=NOT_ACTED_ON, reason=FLINK_ONLY),
    Key("commit.max-retries", INT, "10"),
    Key("commit.max-retry-wait", DURATION, "10 seconds"),
    Key("commit.min-retry-wait", DURATION, "10 millis"),
    Key("commit.strict-mode.last-safe-snapshot", LONG),
    Key("commit.timeout", DURATION),
    Key("commit.user-prefix", TEXT, effect=NOT_ACTED_ON, reason="names of commit users only"),
    Key("compaction.delete-ratio-threshold", DOUBLE, "0.2"),
    Key(
        "compaction.file-num-limit", INT, "100000", since="1.4", effect=NOT_ACTED_ON, reason="memory of Java's planning"
    ),
    Key("compaction.force-rewrite-all-files", BOOL, "false"),
    Key("compaction.force-up-level-0", BOOL, "false"),
    Key("compaction.incremental-size-threshold", MEMORY, since="1.4"),
    Key("compaction.max-size-amplification-percent", INT, "200"),
    Key(
        "compaction.max.file-num", INT, effect=NOT_ACTED_ON, reason=REMOVED
    ),  # Paimon 1.1 removed it; tables still carry it
    Key("compaction.min.file-num", INT, "5"),
    Key("compaction.offpeak-ratio", INT, "0"),
    Key("compaction.offpeak.end.hour", INT, "-1"),
    Key("compaction.offpeak.start.hour", INT, "-1"),
    Key("compaction.optimization-interval", DURATION),
    Key("compaction.size-ratio", INT, "1"),
    Key("compaction.skip-expired-partitions", BOOL, "false", since="2.0"),
    Key("compaction.small-file-ratio", DOUBLE, "0.7", since="2.0"),
    Key("compaction.total-size-threshold", MEMORY),
    Key("consumer-id", TEXT),
    Key("consumer.changelog-only", BOOL, "false", since="1.4"),
    Key("consumer.expiration-time", DURATION),
    Key("consumer.ignore-progress", BOOL, "false"),
    Key("consumer.mode", ENUM, "exactly-once", effect=NOT_ACTED_ON, reason=FLINK_ONLY),
    Key("continuous.discovery-interval", DURATION, "10 seconds", effect=NOT_ACTED_ON, reason=FLINK_ONLY),
    Key("cross-partition-upsert.bootstrap-parallelism", INT, "10", effect=NOT_ACTED_ON, reason=JVM_TUNING),
    Key("cross-partition-upsert.index-ttl", DURATION),
    Key("data-evolution.compaction.rewrite-row-ids", BOOL, "false", since="2.0"),
    Key("data-evolution.enabled", BOOL, "false", immutable=True),
    Key(
        "data-evolution.merge-into.file-pruning",
        BOOL,
        "true",
        since="2.0",
        effect=NOT_ACTED_ON,
        reason=JVM_TUNING,
    ),
    Key(
        "data-evolution.merge-into.source-persist",
        BOOL,
        "false",
        since="2.0",
        effect=NOT_ACTED_ON,
        reason=JVM_TUNING,
    ),
    Key(
        "data-evolution.reassign.skip-contiguous-row-count",
        LONG,
        "1000000000",
        since="2.0",
        effect=OTHER_KIND,
        reason="changes of data-evolution tables",
    ),
    Key(
        "data-evolution.row-id-conflict-rewrite.max-size",
        MEMORY,
        "256 mb",
        since="2.0",
        effect=OTHER_KIND,
        reason="changes of data-evolution tables",
    ),
    Key(
        "data-evolution.row-sidecar.enabled",
        BOOL,
        "false",
        since="2.0",
        effect=OTHER_KIND,
        reason="changes of data-evolution tables",
    ),
    Key(
        "data-evolution.row-sidecar.max-selected-rows",
        LONG,
        "4096",
        since="2.0",
        effect=OTHER_KIND,
        reason="changes of data-evolution tables",
    ),
    Key(
        "data-evolution.row-sidecar.max-selection-ratio",
        DOUBLE,
        "0.05",
        since="2.0",
        effect=OTHER_KIND,
        reason="changes of data-evolution tables",
    ),
    Key("data-file.external-paths", TEXT),
    Key("data-file.external-paths.specific-fs", TEXT),
    Key("data-file.external-paths.strategy", ENUM, "none"),
    Key("data-file.external-paths.weights", TEXT, since="1.4"),
    Key("data-file.path-directory", TEXT, None, immutable=True),
    Key("data-file.prefix", TEXT, "data-"),
    Key("data-file.thin-mode", BOOL, "false"),
    Key("delete.force-produce-changelog", BOOL, "false"),
    Key("deletion-vector.index-file.target-size", MEMORY, "2 mb"),
    Key("deletion-vectors.bitmap64", BOOL, "false"),
    Key("deletion-vectors.enabled", BOOL, "false"),
    Key("deletion-vectors.merge-on-read", BOOL, "false", since="2.0"),
    Key("deletion-vectors.modifiable", BOOL, "false", since="1.4"),
    Key("disable-explicit-type-casting", BOOL, "false"),
    Key("dynamic-bucket.assigner-parallelism", INT),
    Key("dynamic-bucket.initial-buckets", INT, None, immutable=True),
    Key("dynamic-bucket.max-buckets", INT, "-1"),
    Key("dynamic-bucket.target-row-num", LONG, "2000000"),
    Key("dynamic-partition-overwrite", BOOL, "true"),
    Key("end-input.check-partition-expire", BOOL, "false"),
    Key("fields.default-aggregate-function", TEXT),
    Key("file-index.in-manifest-threshold", MEMORY, "500 B"),
    Key("file-index.read.enabled", BOOL, "true"),
    Key(
        "file-operation.thread-num",
        INT,
        None,
        aliases=("delete-file.thread-num",),
        effect=NOT_ACTED_ON,
        reason=JVM_TUNING,
    ),
    Key("file-reader-async-threshold", MEMORY, "10 mb", effect=NOT_ACTED_ON, reason=JVM_TUNING),
    Key("file.block-size", MEMORY),
    Key("file.compression", TEXT, "zstd"),
    Key("file.compression.per.level", MAP, ""),
    Key("file.compression.zstd-level", INT, "1"),
    Key("file.format", TEXT, "parquet"),
    Key("file.format.per.level", MAP, ""),
    Key("file.suffix.include.compression", BOOL, "false"),
    Key("force-lookup", BOOL, "false", immutable=True),
    Key("format-table.commit-hive-sync-url", TEXT, since="1.4", effect=OTHER_KIND, reason="format tables"),
    Key("format-table.file.compression", TEXT, since="1.4", effect=OTHER_KIND, reason="format tables"),
    Key("format-table.implementation", ENUM, "paimon", since="1.4", effect=OTHER_KIND, reason="format tables"),
    Key(
        "format-table.partition-path-only-value", BOOL, "false", since="1.4", effect=OTHER_KIND, reason="format tables"
    ),
    Key("format-table.scan.list-parallelism", INT, "64", since="2.0", effect=OTHER_KIND, reason="format tables"),
    Key("full-compaction.delta-commits", INT),
    Key("full-text-index.search-mode", ENUM, "fast", since="2.0", effect=OTHER_KIND, reason="full-text indexes"),
    Key("global-index.build.max-parallelism", INT, "4096", since="1.4", effect=OTHER_KIND, reason="global indexes"),
    Key("global-index.build.max-shard", INT, "32", since="1.4", effect=OTHER_KIND, reason="global indexes"),
    Key(
        "global-index.column-update-action",
        ENUM,
        "throw-error",
        since="1.4",
        effect=OTHER_KIND,
        reason="global indexes",
    ),
    Key("global-index.enabled", BOOL, "true", since="1.4", effect=OTHER_KIND, reason="global indexes"),
    Key("global-index.external-path", TEXT, since="1.4", effect=REFUSED),
    Key("global-index.row-count-per-shard", LONG, "100000", since="1.4", effect=OTHER_KIND, reason="global indexes"),
    Key("global-index.search-mode", ENUM, since="2.0", effect=OTHER_KIND, reason="global indexes"),
    Key("global-index.thread-num", INT, since="1.4", effect=OTHER_KIND, reason="global indexes"),
    Key(
        "ignore-delete",
        BOOL,
        "false",
        aliases=(
            "first-row.ignore-delete",
            "deduplicate.ignore-delete",
            "partial-update.ignore-delete",
        ),
    ),
    Key("ignore-update-before", BOOL, "false"),
    Key("incremental-between", TEXT),
    Key("incremental-between-scan-mode", ENUM, "auto"),
    Key("incremental-between-tag-to-snapshot", BOOL, "false", since="1.4"),
    Key("incremental-between-timestamp", TEXT),
    Key("incremental-to-auto-tag", TEXT),
    Key("index-file-in-data-file-dir", BOOL, "false", immutable=True),
    Key(
        "key-value.sequence_number.enabled",
        BOOL,
        "false",
        since="1.4",
        effect=NOT_ACTED_ON,
        reason="extra columns of system tables",
    ),
    Key("local-kv-db.block-size", MEMORY, "4 kb", since="2.0", effect=NOT_ACTED_ON, reason=JVM_TUNING),
    Key("local-merge-buffer-size", MEMORY, effect=NOT_ACTED_ON, reason=FLINK_ONLY),
    Key("local-sort.max-num-file-handles", INT, "128"),
    Key("log.changelog-mode", ENUM, "auto", until="1.3", effect=NOT_ACTED_ON, reason=REMOVED),
    Key("log.consistency", ENUM, "transactional", until="1.3", effect=NOT_ACTED_ON, reason=REMOVED),
    Key("log.format", TEXT, "debezium-json", until="1.3", effect=NOT_ACTED_ON, reason=REMOVED),
    Key("log.ignore-delete", BOOL, "false", until="1.3", effect=NOT_ACTED_ON, reason=REMOVED),
    Key("log.key.format", TEXT, "json", until="1.3", effect=NOT_ACTED_ON, reason=REMOVED),
    Key("lookup-compact", ENUM, "radical"),
    Key("lookup-compact.max-interval", INT),
    Key("lookup-wait", BOOL, "true", aliases=("changelog-producer.lookup-wait",)),
    Key("lookup.blob-as-descriptor", BOOL, "false", since="2.0", effect=OTHER_KIND, reason="writes of BLOB columns"),
    Key("lookup.cache-file-retention", DURATION, "1 hours", effect=NOT_ACTED_ON, reason=JVM_TUNING),
    Key("lookup.cache-max-disk-size", MEMORY, "9223372036854775807 b", effect=NOT_ACTED_ON, reason=JVM_TUNING),
    Key("lookup.cache-max-memory-size", MEMORY, "256 mb", effect=NOT_ACTED_ON, reason=JVM_TUNING),
    Key("lookup.cache-rows", LONG, "10000", since="2.0", effect=NOT_ACTED_ON, reason=JVM_TUNING),
    Key("lookup.cache-spill-compression", TEXT, "zstd", effect=NOT_ACTED_ON, reason=JVM_TUNING),
    Key("lookup.cache.bloom.filter.enabled", BOOL, "true", effect=NOT_ACTED_ON, reason=JVM_TUNING),
    Key("lookup.cache.bloom.filter.fpp", DOUBLE, "0.05", effect=NOT_ACTED_ON, reason=JVM_TUNING),
    Key("lookup.cache.high-priority-pool-ratio", DOUBLE, "0.25", effect=NOT_ACTED_ON, reason=JVM_TUNING),
    Key("lookup.continuous.discovery-interval", DURATION, since="2.0", effect=NOT_ACTED_ON, reason=FLINK_ONLY),
    Key("lookup.hash-load-factor", DOUBLE, "0.75", effect=NOT_ACTED_ON, reason=JVM_TUNING),
    Key("lookup.local-file-type", ENUM, "sort", until="1.3", effect=NOT_ACTED_ON, reason=REMOVED),
    Key("lookup.merge-buffer-size", MEMORY, "8 mb", effect=NOT_ACTED_ON, reason=JVM_TUNING),
    Key("lookup.merge-records-threshold", INT, "1024", effect=NOT_ACTED_ON, reason=JVM_TUNING),
    Key("lookup.remote-file.enabled", BOOL, "false", since="1.4", effect=NOT_ACTED_ON, reason=JVM_TUNING),
    Key("lookup.remote-file.level-threshold", INT, "-2147483648", since="1.4", effect=NOT_ACTED_ON, reason=JVM_TUNING),
    Key("manifest-sort.enabled", BOOL, "false", since="2.0"),
    Key("manifest-sort.max-rewrite-size", MEMORY, "256 mb", since="2.0"),
    Key("manifest-sort.partition-field", TEXT, since="2.0"),
    Key("manifest.compression", TEXT, "zstd", effect=NOT_ACTED_ON, reason="manifests are always zstd"),
    Key("manifest.delete-file-drop-stats", BOOL, "false", effect=NOT_ACTED_ON, reason="smaller manifests only"),
    Key("manifest.format", TEXT, "avro", until="2.0", effect=REFUSED),
    Key("manifest.full-compaction-threshold-size", MEMORY, "16 mb"),
    Key("manifest.merge-min-count", INT, "30"),
    Key("manifest.merge-optimize.enabled", BOOL, "true", since="2.1", effect=NOT_ACTED_ON, reason=JVM_TUNING),
    Key("manifest.target-file-size", MEMORY, "8 mb"),
    Key("materialized-table.definition-query", TEXT, effect=OTHER_KIND, reason="materialized tables"),
    Key("materialized-table.interval-freshness", TEXT, effect=OTHER_KIND, reason="materialized tables"),
    Key("materialized-table.interval-freshness.time-unit", ENUM, effect=OTHER_KIND, reason="materialized tables"),
    Key("materialized-table.logical-refresh-mode", ENUM, effect=OTHER_KIND, reason="materialized tables"),
    Key("materialized-table.refresh-handler-bytes", TEXT, effect=OTHER_KIND, reason="materialized tables"),
    Key("materialized-table.refresh-handler-description", TEXT, effect=OTHER_KIND, reason="materialized tables"),
    Key("materialized-table.refresh-mode", ENUM, effect=OTHER_KIND, reason="materialized tables"),
    Key("materialized-table.refresh-status", ENUM, effect=OTHER_KIND, reason="materialized tables"),
    Key("merge-engine", ENUM, "deduplicate", immutable=True),
    Key("metadata.iceberg.compaction.max.file-num", INT, "50"),
    Key("metadata.iceberg.compaction.min.file-num", INT, "10"),
    Key("metadata.iceberg.database", TEXT),
    Key("metadata.iceberg.delete-after-commit.enabled", BOOL, "true"),
    Key("metadata.iceberg.format-version", INT, "2"),
    Key("metadata.iceberg.glue.skip-archive", BOOL, "false"),
    Key("metadata.iceberg.hadoop-conf-dir", TEXT),
    Key("metadata.iceberg.hive-client-class", TEXT, "org.apache.hadoop.hive.metastore.HiveMetaStoreClient"),
    Key("metadata.iceberg.hive-conf-dir", TEXT),
    Key("metadata.iceberg.hive-skip-update-stats", BOOL, "false"),
    Key("metadata.iceberg.manifest-compression", ENUM, "snappy"),
    Key("metadata.iceberg.manifest-legacy-version", BOOL, "false"),
    Key("metadata.iceberg.previous-versions-max", INT, "0"),
    Key("metadata.iceberg.storage", ENUM, "disabled"),
    Key("metadata.iceberg.storage-location", ENUM),
    Key("metadata.iceberg.table", TEXT),
    Key("metadata.iceberg.uri", TEXT),
    Key("metadata.stats-dense-store", BOOL, "true"),
    Key("metadata.stats-keep-first-n-columns", INT, "-1"),
    Key("metadata.stats-mode", TEXT, "truncate(16)"),
    Key("metadata.stats-mode.per.level", MAP, ""),
    Key("metastore.partitioned-table", BOOL, "false"),
    Key("metastore.tag-to-partition", TEXT, effect=NOT_ACTED_ON, reason="Hive catalogs only"),
    Key("metastore.tag-to-partition.preview", ENUM, "none", effect=NOT_ACTED_ON, reason="Hive catalogs only"),
    Key("num-levels", INT),
    Key("num-sorted-run.compaction-trigger", INT, "5"),
    Key("num-sorted-run.stop-trigger", INT),
    Key("overwrite-upgrade", BOOL, "true", since="1.4"),
    Key("page-size", MEMORY, "64 kb", effect=NOT_ACTED_ON, reason=JVM_TUNING),
    Key("parquet.enable.dictionary", INT),
    Key("partial-update.remove-record-on-delete", BOOL, "false", immutable=True),
    Key("partial-update.remove-record-on-sequence-group", TEXT, None, immutable=True),
    Key("partition", TEXT, None, immutable=True),
    Key("partition.default-name", TEXT, "__DEFAULT_PARTITION__"),
    Key("partition.end-input-to-done", BOOL, "false"),
    Key("partition.expiration-batch-size", INT),
    Key("partition.expiration-check-interval", DURATION, "1 hours"),
    Key("partition.expiration-max-num", INT, "100"),
    Key("partition.expiration-strategy", ENUM, "values-time"),
    Key("partition.expiration-time", DURATION),
    Key("partition.idle-time-to-report-statistic", DURATION, "0 millis", effect=NOT_ACTED_ON, reason=FLINK_ONLY),
    Key("partition.legacy-name", BOOL, "true"),
    Key("partition.mark-done-action", TEXT, "success-file"),
    Key("partition.mark-done-action.custom.class", TEXT, effect=NOT_ACTED_ON, reason="Java classes"),
    Key(
        "partition.mark-done-action.http.params",
        TEXT,
        effect=NOT_ACTED_ON,
        reason="no requests to addresses in options",
    ),
    Key("partition.mark-done-action.http.url", TEXT, effect=NOT_ACTED_ON, reason="no requests to addresses in options"),
    Key("partition.sink-strategy", ENUM, "none", effect=NOT_ACTED_ON, reason=FLINK_ONLY),
    Key("partition.timestamp-format.strict", BOOL, "false", since="1.4"),
    Key("partition.timestamp-formatter", TEXT),
    Key("partition.timestamp-pattern", TEXT),
    Key("path", TEXT, effect=REFUSED),
    Key("pk-bitmap.index.columns", TEXT, since="2.0"),
    Key("pk-btree.index.columns", TEXT, since="2.0"),
    Key("pk-clustering-override", BOOL, "false", immutable=True, since="1.4"),
    Key("pk-full-text.index.columns", TEXT, since="2.0", effect=REFUSED),
    Key("pk-multivalue.index.columns", TEXT, since="2.1"),
    Key("pk-vector.index.columns", TEXT, since="2.0", effect=REFUSED),
    Key("postpone.batch-write-fixed-bucket", BOOL, "true", since="1.4"),
    Key(
        "postpone.batch-write-fixed-bucket.max-parallelism",
        INT,
        "2048",
        since="1.4",
        effect=NOT_ACTED_ON,
        reason=JOBS_ONLY,
    ),
    Key(
        "postpone.batch-write-fixed-bucket.rescale-load-factor",
        INT,
        "32",
        since="2.1",
        effect=NOT_ACTED_ON,
        reason=JOBS_ONLY,
    ),
    Key("postpone.default-bucket-num", INT, "1", since="1.4"),
    Key("postpone.merge-on-read", BOOL, "false", since="2.0", effect=NOT_ACTED_ON, reason=JOBS_ONLY),
    Key("postpone.target-row-num-per-bucket", LONG, since="2.0", effect=NOT_ACTED_ON, reason=JOBS_ONLY),
    Key("postpone.target-size-per-bucket", MEMORY, "1 gb", since="2.0", effect=NOT_ACTED_ON, reason=JOBS_ONLY),
    Key("primary-key", TEXT, None, immutable=True),
    Key("primary-key.nullable", BOOL, "false", immutable=True, since="2.1"),
    Key("query-auth.enabled", BOOL, "false", effect=REFUSED),
    Key("read.batch-size", INT, "1024", effect=NOT_ACTED_ON, reason=JVM_TUNING),
    Key("record-level.expire-time", DURATION),
    Key("record-level.time-field", TEXT),
    Key("row-tracking.enabled", BOOL, "false", immutable=True),
    Key(
        "row-tracking.partition-group-on-commit",
        BOOL,
        "true",
        since="2.0",
        effect=NOT_ACTED_ON,
        reason="order of row ids only",
    ),
    Key("rowkind.field", TEXT, None, immutable=True),
    Key("scalar-index.search-mode", ENUM, "fast", since="2.0", effect=OTHER_KIND, reason="global indexes"),
    Key("scan.bounded.watermark", LONG),
    Key("scan.bucket", INT, since="2.0", effect=REFUSED),
    Key("scan.creation-time-millis", LONG),
    Key("scan.fallback-branch", TEXT),
    Key(
        "scan.fallback-branch.read-fail-fast",
        BOOL,
        "false",
        since="2.0",
        effect=NOT_ACTED_ON,
        reason="always fails",
    ),
    Key("scan.fallback-delta-branch", TEXT, since="1.4", effect=REFUSED),
    Key("scan.fallback-snapshot-branch", TEXT, since="1.4", effect=REFUSED),
    Key("scan.file-creation-time-millis", LONG),
    Key("scan.ignore-corrupt-files", BOOL, "false", since="1.4", effect=NOT_ACTED_ON, reason="would hide damage"),
    Key("scan.ignore-lost-files", BOOL, "false", since="1.4", effect=NOT_ACTED_ON, reason="would hide damage"),
    Key("scan.manifest.parallelism", INT, effect=NOT_ACTED_ON, reason=JVM_TUNING),
    Key("scan.max-splits-per-task", INT, "10", effect=NOT_ACTED_ON, reason=FLINK_ONLY),
    Key("scan.mode", ENUM, "default", aliases=("log.scan",)),
    Key("scan.plan-auto-tag-for-read.time-retained", DURATION, since="2.0"),
    Key("scan.plan-sort-partition", BOOL, "false", effect=NOT_ACTED_ON, reason="order of splits only"),
    Key("scan.primary-branch", TEXT, since="1.4"),
    Key("scan.snapshot-id", LONG),
    Key("scan.tag-name", TEXT),
    Key("scan.timestamp", TEXT),
    Key("scan.timestamp-millis", LONG, None, aliases=("log.scan.timestamp-millis",)),
    Key("scan.version", TEXT),
    Key("scan.watermark", LONG),
    Key("sequence.field", TEXT),
    Key("sequence.field.sort-order", ENUM, "ascending"),
    Key("sequence.snapshot-ordering", BOOL, "false", immutable=True, since="2.0"),
    Key("sink.process-time-zone", TEXT, effect=NOT_ACTED_ON, reason=FLINK_ONLY),
    Key("sink.watermark-time-zone", TEXT, "UTC"),
    Key(
        "snapshot.clean-empty-directories",
        BOOL,
        "false",
        aliases=("snapshot.expire.clean-empty-directories",),
    ),
    Key("snapshot.expire.execution-mode", ENUM, "sync"),
    Key("snapshot.expire.limit", INT, "50"),
    Key(
        "snapshot.ignore-empty-commit", BOOL, effect=NOT_ACTED_ON, reason="batch commits without rows write no snapshot"
    ),
    Key("snapshot.num-retained.max", INT, "2147483647"),
    Key("snapshot.num-retained.min", INT, "10"),
    Key("snapshot.time-retained", DURATION, "1 hours"),
    Key("snapshot.watermark-idle-timeout", DURATION, effect=NOT_ACTED_ON, reason=FLINK_ONLY),
    Key("sort-compaction.local-sample.magnification", INT, "1000"),
    Key("sort-compaction.range-strategy", ENUM, "size"),
    Key("sort-engine", ENUM, "loser-tree", effect=NOT_ACTED_ON, reason=JVM_TUNING),
    Key("sort-spill-buffer-size", MEMORY, "64 mb", effect=NOT_ACTED_ON, reason=JVM_TUNING),
    Key("sort-spill-threshold", INT),
    Key("source.split.open-file-cost", MEMORY, "4 mb"),
    Key("source.split.target-size", MEMORY, "128 mb"),
    Key("spill-compression", TEXT, "zstd"),
    Key("spill-compression.zstd-level", INT, "1"),
    Key("stream-scan-mode", ENUM, "none", effect=NOT_ACTED_ON, reason=INTERNAL),
    Key("streaming-read-append-overwrite", BOOL, "false"),
    Key("streaming-read-mode", ENUM, until="1.3", effect=NOT_ACTED_ON, reason=REMOVED),
    Key("streaming-read-overwrite", BOOL, "false"),
    Key("streaming.read.snapshot.delay", DURATION),
    Key(
        "table-read.sequence-number.enabled",
        BOOL,
        "false",
        since="1.4",
        effect=NOT_ACTED_ON,
        reason="extra columns of system tables",
    ),
    Key("tag.automatic-completion", BOOL, "false"),
    Key("tag.automatic-creation", ENUM, "none"),
    Key("tag.batch.customized-name", TEXT),
    Key("tag.callbacks", TEXT, "", effect=REFUSED),
    Key("tag.create-success-file", BOOL, "false"),
    Key("tag.creation-delay", DURATION, "0 millis"),
    Key("tag.creation-period", ENUM, "daily"),
    Key("tag.creation-period-duration", DURATION),
    Key("tag.default-time-retained", DURATION),
    Key("tag.num-retained-max", INT),
    Key("tag.period-formatter", ENUM, "with-dashes"),
    Key("tag.time-expire-enabled", BOOL, "true", since="1.4"),
    Key("target-file-row-num", LONG, "9223372036854775807", since="2.0"),
    Key("target-file-size", MEMORY),
    Key("type", ENUM, "table", immutable=True, effect=REFUSED),
    Key("upsert-key", TEXT, until="2.0", effect=NOT_ACTED_ON, reason=REMOVED),
    Key(
        "variant.inferShreddingSchema",
        BOOL,
        "false",
        since="1.4",
        effect=NOT_ACTED_ON,
        reason="files are written plain",
    ),
    Key(
        "variant.shredding.adaptive.maxInferBufferRow",
        INT,
        "256",
        since="2.0",
        effect=NOT_ACTED_ON,
        reason="files are written plain",
    ),
    Key(
        "variant.shredding.adaptive.retentionRatio",
        DOUBLE,
        "0.05",
        since="2.0",
        effect=NOT_ACTED_ON,
        reason="files are written plain",
    ),
    Key(
        "variant.shredding.inferenceMode",
        ENUM,
        "per-file",
        since="2.0",
        effect=NOT_ACTED_ON,
        reason="files are written plain",
    ),
    Key(
        "variant.shredding.maxInferBufferRow",
        INT,
        "4096",
        since="1.4",
        effect=NOT_ACTED_ON,
        reason="files are written plain",
    ),
    Key(
        "variant.shredding.maxSchemaDepth",
        INT,
        "50",
        since="1.4",
        effect=NOT_ACTED_ON,
        reason="files are written plain",
    ),
    Key(
        "variant.shredding.maxSchemaWidth",
        INT,
        "300",
        since="1.4",
        effect=NOT_ACTED_ON,
        reason="files are written plain",
    ),
    Key(
        "variant.shredding.minFieldCardinalityRatio",
        DOUBLE,
        "0.1",
        since="1.4",
        effect=NOT_ACTED_ON,
        reason="files are written plain",
    ),
    Key(
        "variant.shreddingSchema",
        TEXT,
        None,
        aliases=("parquet.variant.shreddingSchema",),
        since="1.4",
        effect=NOT_ACTED_ON,
        reason="files are written plain",
    ),
    Key("vector-field", TEXT, since="1.4", effect=OTHER_KIND, reason="VECTOR columns"),
    Key("vector-index.search-mode", ENUM, "fast", since="2.0", effect=OTHER_KIND, reason="vector indexes"),
    Key("vector-search.distribute.enabled", BOOL, "false", since="2.0", effect=OTHER_KIND, reason="vector indexes"),
    Key("vector-search.lateral-join.batch-size", INT, "256", since="2.0", effect=OTHER_KIND, reason="vector indexes"),
    Key("vector.file.format", TEXT, since="1.4", effect=OTHER_KIND, reason="VECTOR columns"),
    Key("vector.target-file-size", MEMORY, since="1.4", effect=OTHER_KIND, reason="VECTOR columns"),
    Key(
        "visibility-callback.check-interval",
        DURATION,
        "10 seconds",
        since="1.4",
        effect=NOT_ACTED_ON,
        reason=FLINK_ONLY,
    ),
    Key("visibility-callback.enabled", BOOL, "false", since="1.4", effect=NOT_ACTED_ON, reason=FLINK_ONLY),
    Key("visibility-callback.timeout", DURATION, "30 minutes", since="1.4", effect=NOT_ACTED_ON, reason=FLINK_ONLY),
    Key("write-buffer-for-append", BOOL, "false"),
    Key("write-buffer-size", MEMORY, "256 mb"),
    Key("write-buffer-spill.max-disk-size", MEMORY, "9223372036854775807 b"),
    Key("write-buffer-spillable", BOOL, "true"),
    Key("write-max-writers-to-spill", INT, "10"),
    Key("write-only", BOOL, "false", aliases=("write.compaction-skip",)),
    Key("write.batch-memory", MEMORY, "128 mb", effect=NOT_ACTED_ON, reason=JVM_TUNING),
    Key("write.batch-size", INT, "1024", aliases=("orc.write.batch-size",), effect=NOT_ACTED_ON, reason=JVM_TUNING),
    Key("write.sequence-number-init-mode", ENUM, "scan", since="2.0"),
    Key("zorder.var-length-contribution", INT, "8"),
)

READING: Final = ("scan.", "incremental-")
"""Prefixes of options that select the rows of a read."""
_FLINK: Final = frozenset(
    {
        "changelog-producer.compaction-interval",
        "changelog.precommit-compact.buffer-size",
        "changelog.precommit-compact.thread-num",
        "commit.custom-listeners",
        "compaction.bucket-distribution-strategy",
        "end-input.watermark",
        "filesystem.job-level-settings.enabled",
        "lookup.async",
        "lookup.async-thread-number",
        "lookup.bootstrap-parallelism",
        "lookup.cache",
        "lookup.dynamic-partition.refresh-interval",
        "lookup.dynamic-partition.refresh.async",
        "lookup.refresh.async",
        "lookup.refresh.async.pending-snapshot-count",
        "lookup.refresh.full-load-threshold",
        "lookup.refresh.time-periods-blacklist",
        "partition.idle-time-to-done",
        "partition.mark-done-action.mode",
        "partition.mark-done.recover-from-state",
        "partition.time-interval",
        "precommit-compact",
        "read.shuffle-bucket-with-partition",
        "scan.bounded",
        "scan.dedicated-split-generation",
        "scan.infer-parallelism",
        "scan.infer-parallelism.max",
        "scan.max-snapshot.count",
        "scan.parallelism",
        "scan.partitions",
        "scan.push-down",
        "scan.remove-normalize",
        "scan.split-enumerator.batch-size",
        "scan.split-enumerator.mode",
        "scan.watermark.alignment.group",
        "scan.watermark.alignment.max-drift",
        "scan.watermark.alignment.update-interval",
        "scan.watermark.emit.strategy",
        "scan.watermark.idle-timeout",
        "sink.clustering.sample-factor",
        "sink.clustering.sort-in-cluster",
        "sink.committer-cpu",
        "sink.committer-memory",
        "sink.committer-operator-chaining",
        "sink.coordinator-commit.enabled",
        "sink.cross-partition.managed-memory",
        "sink.key-only-deletes.enabled",
        "sink.managed.writer-buffer-memory",
        "sink.operator-uid.suffix",
        "sink.parallelism",
        "sink.savepoint.auto-tag",
        "sink.use-managed-memory-allocator",
        "sink.writer-coordinator.cache-expire-after-access",
        "sink.writer-coordinator.cache-memory",
        "sink.writer-coordinator.cache-soft-values",
        "sink.writer-coordinator.enabled",
        "sink.writer-coordinator.page-size",
        "sink.writer-coordinator.prefetch-manifests",
        "sink.writer-cpu",
        "sink.writer-memory",
        "sink.writer-refresh-detectors",
        "source.checkpoint-align.enabled",
        "source.checkpoint-align.timeout",
        "source.operator-uid.suffix",
        "unaware-bucket.compaction.parallelism",
        "unaware-bucket.no-shuffle",
    }
)
"""Options of the Flink connector (``FlinkConnectorOptions``), which Flink may store in tables."""
_PYPAIMON: Final = frozenset(
    {
        "bitmap-index.compression",
        "bitmap-index.compression-level",
        "bitmap-index.dictionary-block-size",
        "bitmap-index.fallback-scan-max-size",
        "btree-index.block-size",
        "btree-index.bloom-filter.enabled",
        "btree-index.fallback-scan-max-size",
        "btree-index.records-per-range",
        "commit.native.enabled",
        "data-evolution.write-cols-optimization.enabled",
        "global-index.build.parallelism",
        "global-index.filter.refine-from-data",
        "local-cache.block-size",
        "local-cache.dir",
        "local-cache.enabled",
        "local-cache.max-size",
        "local-cache.whitelist",
        "manifest.sidecar.enabled",
        "mosaic.num-buckets",
        "mosaic.stats-columns",
        "parquet.filter.columnindex.enabled",
        "parquet.write-page-index.enabled",
        "read.native.enabled",
        "read.parallelism",
        "scan.native-plan.enabled",
        "sorted-index.records-per-file",
        "video-frame-field",
        "write.native.enabled",
    }
)
"""Options of pypaimon 2.1 that Java does not have: tuning of its readers, writers and indexes."""
_SPARK: Final = frozenset({"external", "is_managed_location", "location", "owner", "provider"})
"""Table properties that Spark reserves and may store with the options of a table."""
_SPARK_CONNECTOR: Final = frozenset(
    {
        "format-table.repair.collect-statistics",
        "format-table.statistics.parallelism",
        "legacy-timestamp-mapping.enabled",
        "paimon.respect.minmaxsplitsize.enabled",
        "paimon.split.openfilecost",
        "read.allow.fullScan",
        "read.changelog",
        "read.stream.maxBytesPerTrigger",
        "read.stream.maxFilesPerTrigger",
        "read.stream.maxRowsPerTrigger",
        "read.stream.maxTriggerDelayMs",
        "read.stream.minRowsPerTrigger",
        "requiredSparkConfsCheck.enabled",
        "source.split.target-size-with-column-pruning",
        "vector-search.lateral-join.parallelism",
        "write.data-evolution.update-conflict-retry.max-attempts",
        "write.data-evolution.update-conflict-retry.wait-ms",
        "write.hive-style-dynamic-partition.enabled",
        "write.merge-schema",
        "write.merge-schema.explicit-cast",
        "write.merge-schema.type-widening",
        "write.use-v2-write",
    }
)
"""Options of the connectors for Spark and Hive (``SparkConnectorOptions``, ``HiveConnectorOptions``)."""
_INDEXES: Final = frozenset(
    {
        "btree-index.build.max-parallelism",
        "btree-index.cache-size",
        "btree-index.compression",
        "btree-index.compression-level",
        "btree-index.high-priority-pool-ratio",
        "lumina.diskann.build.ef_construction",
        "lumina.diskann.build.neighbor_count",
        "lumina.diskann.build.thread_count",
        "lumina.diskann.search.beam_width",
        "lumina.diskann.search.list_size",
        "lumina.distance.metric",
        "lumina.encoding.pq.m",
        "lumina.encoding.type",
        "lumina.index.dimension",
        "lumina.index.type",
        "lumina.pretrain.sample_ratio",
        "lumina.search.parallel_number",
        "multivalue-index.compression",
        "multivalue-index.compression-level",
        "multivalue-index.dictionary-block-size",
        "sorted-index.build.max-parallelism",
        "sorted-index.records-per-range",
    }
)
"""Options of the writers and readers of indexes that Dredge does not build (``BTreeIndexOptions`` and others)."""
OTHER_ENGINES: Final = _FLINK | _PYPAIMON | _SPARK | _SPARK_CONNECTOR | _INDEXES
"""Options that only other engines use; Dredge keeps them, and does not warn about them."""

# An unknown key of this kind is an error, because no other engine uses it.
DREDGE_KEYS: Final[tuple[Key, ...]] = (
    Key("dredge.compaction.exact-keys", ENUM, "auto"),
    Key("dredge.compaction.inline", ENUM, "follow"),
    Key("dredge.compaction.mergeable-branches", ENUM, "closed"),
    Key("dredge.compaction.order-sensitive", ENUM, "closed"),
    Key("dredge.compaction.piece-size", MEMORY, "32 mb"),
    Key("dredge.delete-mode", ENUM, "two-phase"),
    Key("dredge.lock", ENUM, "none"),
    Key("dredge.lock.acquire-timeout", DURATION, "8 min"),
    Key("dredge.lock.check-max-sleep", DURATION, "8 s"),
    Key("dredge.lock.key", TEXT, "jdbc"),
    Key("dredge.lock.lease", DURATION, "30 s"),
    Key("dredge.lock.uri", TEXT),
    Key("dredge.merge-budget", MEMORY, "256 mb"),
    Key("dredge.paimon-version", ENUM, "1.4"),
    Key("dredge.pre-compaction-tag", BOOL, "false"),
    Key("dredge.pre-compaction-tag.time-retained", DURATION, "24 h"),
    Key("dredge.read.exact-keys", ENUM, "auto"),
    Key("dredge.read.threads", INT),
    Key("dredge.tombstone-retention", DURATION, "0 ms"),
    Key("dredge.trash-grace", DURATION, "24 h"),
    Key("dredge.trash-grace-expiry", DURATION, "1 h"),
    Key("dredge.verification", ENUM, "full"),
)

# Enums of Paimon 1.4. Newer enums, and those that newer versions may extend without effect here, are not listed: other
# engines validate them.
ENUMS: Final[dict[str, tuple[str, ...]]] = {
    "batch-scan-mode": ("none", "compact"),
    "bucket-function.type": ("default", "mod", "hive"),
    "changelog-producer": ("none", "input", "full-compaction", "lookup"),
    "clustering.incremental.mode": ("global-sort", "local-sort"),
    "consumer.mode": ("exactly-once", "at-least-once"),
    "data-file.external-paths.strategy": ("none", "specific-fs", "round-robin", "entropy-inject", "weight-robin"),
    "dredge.compaction.exact-keys": ("auto", "always", "never"),
    "dredge.compaction.inline": ("follow", "never"),
    "dredge.compaction.mergeable-branches": ("closed", "as-paimon"),
    "dredge.compaction.order-sensitive": ("closed", "as-paimon"),
    "dredge.delete-mode": ("two-phase", "direct"),
    "dredge.lock": ("none", "file", "jdbc", "hive"),
    "dredge.paimon-version": ("1.4", "2.0", "2.1"),
    "dredge.read.exact-keys": ("auto", "always", "never"),
    "dredge.verification": ("full", "sampled", "counts"),
    "format-table.implementation": ("paimon", "engine"),
    "incremental-between-scan-mode": ("auto", "delta", "changelog", "diff"),
    "log.changelog-mode": ("auto", "all", "upsert"),
    "log.consistency": ("transactional", "eventual"),
    "lookup-compact": ("radical", "gentle"),
    "materialized-table.interval-freshness.time-unit": ("second", "minute", "hour", "day"),
    "materialized-table.refresh-mode": ("continuous", "full", "automatic"),
    "materialized-table.refresh-status": ("initializing", "activated", "suspended"),
    "merge-engine": ("deduplicate", "partial-update", "aggregation", "first-row"),
    "metadata.iceberg.manifest-compression": (
        *("none", "null", "uncompressed", "snappy", "zstd", "zstandard", "deflate", "gzip", "bzip2", "xz"),
    ),
    "metadata.iceberg.storage": ("disabled", "table-location", "hadoop-catalog", "hive-catalog", "rest-catalog"),
    "metadata.iceberg.storage-location": ("table-location", "catalog-location"),
    "metastore.tag-to-partition.preview": ("none", "process-time", "watermark", "batch"),
    "partition.expiration-strategy": ("values-time", "update-time", "custom"),
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
        "latest-delta",
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

# Smallest and largest useful value; Java often fails only later, in the middle of a job. Numbers that are not listed
# (ratios, triggers below 0) have the same meaning as in Java.
RANGES: Final[dict[str, tuple[float, float]]] = {
    "changelog.num-retained.max": (1, INT_MAX),
    "changelog.num-retained.min": (1, INT_MAX),
    "compaction.max.file-num": (1, INT_MAX),
    "compaction.offpeak.end.hour": (-1, 24),
    "compaction.offpeak.start.hour": (-1, 23),
    "compaction.small-file-ratio": (0, 1),
    "dredge.read.threads": (1, 1024),
    "dynamic-bucket.assigner-parallelism": (1, INT_MAX),
    "dynamic-bucket.initial-buckets": (1, INT_MAX),
    "dynamic-bucket.target-row-num": (1, 2**63 - 1),
    "full-compaction.delta-commits": (1, INT_MAX),
    "metadata.iceberg.compaction.max.file-num": (1, INT_MAX),
    "metadata.iceberg.compaction.min.file-num": (1, INT_MAX),
    "metadata.iceberg.format-version": (2, 3),
    "metadata.iceberg.previous-versions-max": (0, INT_MAX),
    "num-levels": (2, 1000),
    "num-sorted-run.compaction-trigger": (1, INT_MAX),
    "snapshot.expire.limit": (0, INT_MAX),
    "snapshot.num-retained.max": (1, INT_MAX),
    "snapshot.num-retained.min": (1, INT_MAX),
    "sort-compaction.local-sample.magnification": (1, INT_MAX),
    "sort-spill-threshold": (2, INT_MAX),
    "target-file-row-num": (1, 2**63 - 1),
    "zorder.var-length-contribution": (1, 1024),
}
# The same for names with a free part, by how they end.
_FREE_RANGES: Final[dict[str, tuple[float, float]]] = {
    ".count-limit": (1, INT_MAX),
    ".fpp": (1e-9, 1 - 1e-9),
    ".items": (1, INT_MAX),
}

ADDRESSES: Final = frozenset({"dredge.lock.uri", "uri"})
"""Options with an address, which must not contain a password."""

# Sizes of at least one byte: with 0 the work that they limit could never continue.
POSITIVE_SIZES: Final = frozenset(
    {
        "dredge.compaction.piece-size",
        "dredge.merge-budget",
        "manifest.target-file-size",
        "target-file-size",
        "write-buffer-size",
    }
)

# Sizes that Java stores in an int, for a buffer of at least one byte.
BUFFER_SIZES: Final = frozenset({"blob.copy-buffer-size"})


def number_range(name: str, low: float, high: float) -> tuple[float, float]:
    """Return the smallest and largest accepted number of an option.

    Args:
        name: the option.
        low: smallest number of the option's type.
        high: largest number of the option's type.

    Returns:
        The range of the option, or ``(low, high)`` if no range is listed for the option.
    """
    family_range = next((limits for end, limits in _FREE_RANGES.items() if name.endswith(end)), (low, high))
    return RANGES.get(name, family_range)


# Patterns of the free parts of a family's names.
_FREE: Final = {"column": r".+", "class": r".+", "key": r".+", "type": r"[^.]+", "setting": r"[^.]+"}


@dataclass(frozen=True)
class Family:
    """A family of options whose names have a variable part, such as a column name.

    Attributes:
        form: pattern of the names, as in "fields.<column>.distinct".
        kind: type of the values.
        since: first Paimon version with the family.
        effect: effect of the options in Dredge.
        reason: why the options have no effect in Dredge, in a few words; "" if they have an effect.
    """

    form: str
    kind: str = TEXT
    since: str = "1.3"
    effect: Effect = Effect.ACTED_ON
    reason: str = ""

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        return re.compile(re.sub(r"<(\w+)>", lambda part: _FREE[part.group(1)], re.escape(self.form)))

    def holds(self, name: str) -> bool:
        """Return whether the option ``name`` belongs to the family."""
        return self._pattern.fullmatch(name) is not None

    def key(self, name: str) -> Key:
        """Return the definition of the option ``name``."""
        return Key(name, self.kind, since=self.since, effect=self.effect, reason=self.reason)


FAMILIES: Final[tuple[Family, ...]] = (
    Family("fields.<column>.aggregate-function"),
    Family("fields.<column>.ignore-retract", BOOL),
    Family("fields.<column>.distinct", BOOL),
    Family("fields.<column>.list-agg-delimiter"),
    Family("fields.<column>.nested-key"),
    Family("fields.<column>.count-limit", INT),
    Family("fields.<column>.stats-mode"),
    Family("fields.<column>.sequence-group"),
    Family("fields.<column>.nested-key-null-strategy", since="2.0"),
    Family("fields.<column>.nested-sequence-field", since="2.0"),
    Family("fields.<column>.ts-field", since="2.0"),
    Family(
        "fields.<column>.map.storage-layout",
        since="2.0",
        effect=NOT_ACTED_ON,
        reason="layouts of maps that Dredge does not write",
    ),
    # Counted columns are sums of ones to other engines.
    Family("dredge.fields.<column>.count-inputs", BOOL),
    # Paimon up to 1.2 kept defaults of columns in options; the schema's own members replaced them.
    Family(
        "fields.<column>.default-value",
        effect=NOT_ACTED_ON,
        reason=f"{REMOVED}: set the default of the column instead (ALTER TABLE ... ALTER COLUMN ... SET DEFAULT)",
    ),
    Family("file-index.bloom-filter.columns"),
    Family("file-index.bloom-filter.<column>.items", INT),
    Family("file-index.bloom-filter.<column>.fpp", DOUBLE),
    Family("file-index.bitmap.columns"),
    Family("file-index.bitmap.<column>.version", INT),
    Family("file-index.bitmap.<column>.index-block-size", MEMORY),
    Family("file-index.bsi.columns"),
    Family("file-index.range-bitmap.columns"),
    Family("file-index.range-bitmap.<column>.chunk-size", MEMORY),
    Family("file-index.<type>.columns", effect=REFUSED),
    Family("file-index.<type>.<column>.<setting>", effect=OTHER_KIND, reason="other file indexes"),
    Family("commit.callback.<class>.param", effect=OTHER_KIND, reason="commit callbacks"),
    Family("tag.callback.<class>.param", effect=OTHER_KIND, reason="tag callbacks"),
    # Options of text files, which are read.
    Family("csv.field-delimiter"),
    Family("csv.quote-character"),
    Family("csv.escape-character"),
    Family("csv.null-literal"),
    Family("csv.include-header", BOOL),
    Family("csv.line-delimiter"),
    Family("csv.mode", effect=NOT_ACTED_ON, reason="a row that cannot be read is an error"),
    Family("json.line-delimiter"),
    Family("json.ignore-parse-errors", BOOL, effect=NOT_ACTED_ON, reason="a row that cannot be read is an error"),
    Family("json.map-null-key-mode", effect=NOT_ACTED_ON, reason="columns of type MAP are refused in JSON files"),
    Family("json.map-null-key-literal", effect=NOT_ACTED_ON, reason="columns of type MAP are refused in JSON files"),
    Family("text.line-delimiter"),
    # These sizes are the writers' to read, where the table's files have that format.
    Family("parquet.block.size"),
    Family("parquet.page.size"),
    Family("parquet.page.row.count.limit"),
    Family("parquet.dictionary.page.size"),
    Family("parquet.compression"),
    Family("parquet.compression#<column>"),
    Family("parquet.compression.codec.zstd.level"),
    Family("parquet.enable.dictionary#<column>"),
    Family("parquet.writer.version"),
    Family("parquet.bloom.filter.enabled"),
    Family("parquet.bloom.filter.enabled#<column>"),
    Family("parquet.bloom.filter.expected.ndv"),
    Family("parquet.bloom.filter.expected.ndv#<column>"),
    Family("parquet.bloom.filter.fpp"),
    Family("parquet.bloom.filter.fpp#<column>"),
    Family("orc.stripe.size"),
    Family("orc.compress.size"),
    Family("orc.row.index.stride"),
    Family("orc.dictionary.key.threshold"),
    Family("orc.block.padding.tolerance"),
    Family("orc.compression.strategy"),
    Family("orc.bloom.filter.columns"),
    Family("orc.bloom.filter.fpp"),
    Family("avro.codec"),
    Family("csv.field-delimiter"),
    Family("csv.quote-character"),
    Family("csv.escape-character"),
    Family("csv.null-literal"),
    Family("csv.include-header", BOOL),
    Family("csv.line-delimiter"),
    Family("csv.<key>", effect=NOT_ACTED_ON, reason="malformed lines, which no writer of Paimon writes"),
    Family("json.line-delimiter"),
    Family("json.<key>", effect=NOT_ACTED_ON, reason="malformed lines and maps, which are not read"),
    Family("text.line-delimiter"),
    Family("parquet.<key>", effect=NOT_ACTED_ON, reason="settings that Arrow's writer does not have"),
    Family("orc.<key>", effect=NOT_ACTED_ON, reason="settings that ORC's C++ writer does not have"),
    Family("avro.<key>", effect=NOT_ACTED_ON, reason="names of Avro records only"),
    Family("metadata.iceberg.<key>", effect=NOT_ACTED_ON, reason="Iceberg's REST catalog"),
)
"""Families of options; a name belongs to the first family that matches."""


def family_key(name: str) -> Key | None:
    """Return the definition of an option from the first matching family, or None."""
    return next((family.key(name) for family in FAMILIES if family.holds(name)), None)
