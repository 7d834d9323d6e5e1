"""One table's options as typed attributes: parsed and checked once, defaults resolved as Paimon's CoreOptions does."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from lsm_core.clock import written_span
from lsm_core.errors import InvalidOption
from lsm_core.options.changing import check_change
from lsm_core.options.paimon_version import KEY as PAIMON_VERSION
from lsm_core.options.paimon_version import PaimonVersion
from lsm_core.options.registry import ALIASES, REGISTRY, canonical, check, mistyped_reading, parse_value
from lsm_core.options.units import memory_size

_INT_MAX = 2**31 - 1
_DEFAULTS: dict[str, Any] = {
    name: None if key.default is None else parse_value(key, key.default) for name, key in REGISTRY.items()
}
_MB = 1 << 20
_MINUTE = 60_000
_PERIODS = {"daily": 1440 * _MINUTE, "hourly": 60 * _MINUTE, "two-hours": 120 * _MINUTE}


class TableOptions:
    """Typed, immutable view of a table's options; sizes in bytes, times in ms. Source class: ``CoreOptions``.

    Every known key is checked at construction: raises InvalidOption naming key, value and what is accepted. Of a table that is
    ``stored`` so, maybe by an engine that takes more, each is refused by what needs it alone: others go on, as in Java.
    """

    def __init__(self, options: Mapping[str, str], table: str = "", stored: bool = False) -> None:
        self._table, self._stored = table, stored
        self._dynamic_keys: frozenset[str] = frozenset()
        self._raw = {str(k): str(v) for k, v in options.items()}
        self._refused: dict[str, InvalidOption] = {}
        self._typed = check(self._raw, table, self._refused if stored else None)
        for error in self._contradictions():
            if not stored:
                raise error
            self._refused.setdefault(error.key, error)

    @classmethod
    def usable(cls, options: Mapping[str, str], table: str = "") -> TableOptions:
        """As the constructor, where options that cannot be used count as not set: for whoever lists or repairs a table."""
        left = dict(options)
        while True:
            try:
                return cls(left, table)
            except InvalidOption as error:
                fewer = {key: value for key, value in left.items() if error.key not in (key, ALIASES.get(key))}
                if len(fewer) == len(left):
                    raise
                left = fewer

    # -- general ---------------------------------------------------------------------------------------------------

    @property
    def raw(self) -> Mapping[str, str]:
        """The options as given (a copy)."""
        return dict(self._raw)

    @property
    def table(self) -> str:
        """Name of the table, for messages."""
        return self._table

    def is_tables_own(self, key: str) -> bool:
        """Return whether the table itself sets ``key``: neither its catalog nor a caller of this process gave it."""
        return self.is_set(key) and key not in self._dynamic_keys

    def is_set(self, key: str) -> bool:
        """Tell whether ``key`` (or an alias of it) was given."""
        return key in self._typed or key in self._raw

    def get(self, key: str) -> Any:
        """Return the typed value of any known key, its default when unset. Raises InvalidOption for an unknown or unusable one."""
        if key not in REGISTRY:
            raise InvalidOption(key, self._raw.get(key), "a known option", self._table)
        self._require(key)
        return self._typed.get(key, _DEFAULTS[key])

    def text(self, key: str) -> str | None:
        """What was given for ``key``, also for one with a free part in its name. Raises InvalidOption as :meth:`get`."""
        self._require(key)
        return self._raw.get(key)

    def given_size(self, key: str, default: int) -> int:
        """Bytes given for a size of a format's own ("parquet.page.size"), at least 1. Raises InvalidOption."""
        text = self._raw.get(key)
        try:
            size = default if text is None else memory_size(text, key)
        except InvalidOption as error:
            raise InvalidOption(key, text, error.accepted, self._table) from error
        if size < 1:
            raise InvalidOption(key, text, "a size of at least 1 byte", self._table)
        return size

    def _require(self, key: str) -> None:
        error = self._refused.get(key)
        if error is not None:
            accepted = f"{error.accepted}. It is stored so: Catalog.alter_table can set or remove it"
            raise InvalidOption(error.key, error.value, accepted, error.table)

    def copy(self, dynamic: Mapping[str, str | None]) -> TableOptions:
        """Return options with ``dynamic`` on top; one that is None there is taken away, as if the table had never had it.

        Raises InvalidOption when one that files depend on would change, and for a reading option that does not exist: a read that
        passed it over would answer another question.
        """
        for error in mistyped_reading(dynamic).values():
            raise InvalidOption(error.key, error.value, error.accepted, self._table)
        own = canonical(self._raw)
        given = canonical({str(k): None if v is None else str(v) for k, v in dynamic.items()})
        for name, value in given.items():
            check_change(own, name, value, self._table, dynamic=True)
        together = {name: value for name, value in {**own, **given}.items() if value is not None}
        made = TableOptions(together, self._table, self._stored)
        made._dynamic_keys = self._dynamic_keys.difference(given) | {
            name for name, value in given.items() if value is not None
        }
        for name, error in made._refused.items():
            if name in given or name not in self._refused:
                raise error
        return made

    def _contradictions(self) -> Iterator[InvalidOption]:
        low, high = "snapshot.num-retained.min", "snapshot.num-retained.max"
        if not {low, high} & self._refused.keys() and (self.retained_max or _INT_MAX) < self.retained_min:
            yield InvalidOption(high, self.retained_max, f"at least {low} ({self.retained_min})", self._table)
        low, high = "commit.min-retry-wait", "commit.max-retry-wait"
        if not {low, high} & self._refused.keys() and self.commit_min_retry_wait > self.commit_max_retry_wait:
            yield InvalidOption(low, self.commit_min_retry_wait, f"at most {high}", self._table)
        delay, length, period = "tag.creation-delay", "tag.creation-period-duration", "tag.creation-period"
        usable = not {delay, length, period, "tag.automatic-creation"} & self._refused.keys()
        if usable and self.tag_creation in ("process-time", "watermark"):
            given = self._number(length)
            if given is not None and given < _MINUTE:  # their names tell minutes
                yield InvalidOption(length, self._raw.get(length), "at least 1 min", self._table)
            most = _PERIODS[self.get(period)] if given is None else given
            if self.get(delay) >= most:
                yield InvalidOption(
                    delay, self._raw.get(delay), f"less than the period ({written_span(most)})", self._table
                )

    def _names(self, key: str) -> tuple[str, ...]:
        text = self.get(key)
        return tuple(part.strip() for part in text.split(",") if part.strip()) if text else ()

    def _number(self, key: str) -> int | None:
        value = self.get(key)
        return None if value is None else int(value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TableOptions) and self._raw == other._raw and self._table == other._table

    def __hash__(self) -> int:
        return hash((self._table, tuple(sorted(self._raw.items()))))

    def __repr__(self) -> str:
        return f"TableOptions({self._raw!r}, table={self._table!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return TableOptions, (self._raw, self._table, self._stored), {"_dynamic_keys": self._dynamic_keys}

    # -- what a row means ------------------------------------------------------------------------------------------

    @property
    def bucket(self) -> int:
        """``bucket``: > 0 fixed, -1 dynamic or unaware, -2 postpone."""
        return int(self.get("bucket"))

    @property
    def bucket_key(self) -> tuple[str, ...]:
        """``bucket-key`` as given; empty means the trimmed primary key."""
        return self._names("bucket-key")

    @property
    def bucket_function(self) -> str:
        """``bucket-function.type``: default, mod or hive."""
        return str(self.get("bucket-function.type"))

    @property
    def merge_engine(self) -> str:
        """``merge-engine``."""
        return str(self.get("merge-engine"))

    @property
    def sequence_field(self) -> tuple[str, ...]:
        """``sequence.field``: the user's ordering columns."""
        return self._names("sequence.field")

    @property
    def sequence_descending(self) -> bool:
        """Whether the smallest value of ``sequence.field`` wins."""
        return bool(self.get("sequence.field.sort-order") == "descending")

    @property
    def changelog_producer(self) -> str:
        """``changelog-producer``."""
        return str(self.get("changelog-producer"))

    @property
    def deletion_vectors_enabled(self) -> bool:
        """``deletion-vectors.enabled``."""
        return bool(self.get("deletion-vectors.enabled"))

    @property
    def batch_scan_skips_level0(self) -> bool:
        """Whether batch reads of a primary-key table see only what was compacted (``CoreOptions.batchScanSkipLevel0``).

        So it is with deletion vectors, unless ``deletion-vectors.merge-on-read`` is set, and with merge engine first-row.
        """
        if self.deletion_vectors_enabled:
            return not self.get("deletion-vectors.merge-on-read")
        return self.merge_engine == "first-row"

    @property
    def vectors_target_size(self) -> int:
        """``deletion-vector.index-file.target-size``: bytes at which a table without buckets begins another index file."""
        return int(self.get("deletion-vector.index-file.target-size"))

    @property
    def write_only(self) -> bool:
        """``write-only``: writers neither compact nor expire."""
        return bool(self.get("write-only"))

    @property
    def ignore_delete(self) -> bool:
        """``ignore-delete``: retracts are dropped."""
        return bool(self.get("ignore-delete"))

    @property
    def rowkind_field(self) -> str | None:
        """``rowkind.field``: column holding the row kind."""
        value = self.get("rowkind.field")
        return None if value is None else str(value)

    # -- files -----------------------------------------------------------------------------------------------------

    @property
    def file_format(self) -> str:
        """``file.format``, lower case."""
        return str(self.get("file.format")).lower()

    def format_of_level(self, level: int) -> str:
        """``file.format``, or what ``file.format.per.level`` ("0:avro,5:parquet") says of ``level``; lower case, not checked."""
        return str((self.get("file.format.per.level") or {}).get(str(level), self.file_format)).strip().lower()

    @property
    def file_compression(self) -> str:
        """``file.compression``, lower case."""
        return str(self.get("file.compression")).lower()

    @property
    def zstd_level(self) -> int:
        """``file.compression.zstd-level``; beyond Zstandard's own limits the nearest of them."""
        return max(-131_072, min(22, int(self.get("file.compression.zstd-level"))))

    @property
    def data_file_prefix(self) -> str:
        """``data-file.prefix``."""
        return str(self.get("data-file.prefix"))

    @property
    def stats_mode(self) -> str:
        """``metadata.stats-mode``, lower case."""
        return str(self.get("metadata.stats-mode")).strip().lower()

    @property
    def thin_mode(self) -> bool:
        """``data-file.thin-mode``: key columns are not stored twice."""
        return bool(self.get("data-file.thin-mode"))

    @property
    def write_buffer_size(self) -> int:
        """``write-buffer-size`` in bytes."""
        return int(self.get("write-buffer-size"))

    def target_file_size(self, has_primary_key: bool) -> int:
        """``target-file-size`` in bytes: 128 MB with a primary key, 256 MB without, unless set."""
        return self._number("target-file-size") or (128 if has_primary_key else 256) * _MB

    def compaction_file_size(self, has_primary_key: bool) -> int:
        """Size in bytes below which a file counts as small: 70 % of the target."""
        target = self.target_file_size(has_primary_key)
        if self.is_set("compaction.small-file-ratio"):
            return int(target * float(self.get("compaction.small-file-ratio")))
        return target // 10 * 7

    # -- snapshots, manifests, commits -------------------------------------------------------------------------------

    @property
    def retained_min(self) -> int:
        """``snapshot.num-retained.min``."""
        return int(self.get("snapshot.num-retained.min"))

    @property
    def retained_max(self) -> int | None:
        """``snapshot.num-retained.max``; None = no limit."""
        value = int(self.get("snapshot.num-retained.max"))
        return None if value >= _INT_MAX else value

    @property
    def time_retained(self) -> int:
        """``snapshot.time-retained`` in ms."""
        return int(self.get("snapshot.time-retained"))

    @property
    def expire_limit(self) -> int:
        """``snapshot.expire.limit``: most snapshots expired at once."""
        return int(self.get("snapshot.expire.limit"))

    @property
    def changelog_retained_min(self) -> int:
        """``changelog.num-retained.min``, by default as many as snapshots."""
        given = self._number("changelog.num-retained.min")
        return self.retained_min if given is None else given

    @property
    def changelog_retained_max(self) -> int | None:
        """``changelog.num-retained.max``, by default as many as snapshots; None = no limit."""
        given = self._number("changelog.num-retained.max")
        if given is None:
            return self.retained_max
        return None if given >= _INT_MAX else given

    @property
    def changelog_time_retained(self) -> int:
        """``changelog.time-retained`` in ms, by default as long as snapshots."""
        given = self._number("changelog.time-retained")
        return self.time_retained if given is None else given

    @property
    def changelog_decoupled(self) -> bool:
        """Whether changelogs are kept longer than their snapshots (Java `changelogLifecycleDecoupled`)."""
        most = (self.changelog_retained_max or _INT_MAX) > (self.retained_max or _INT_MAX)
        longer = self.changelog_time_retained > self.time_retained
        return most or longer or self.changelog_retained_min > self.retained_min

    @property
    def manifest_target_size(self) -> int:
        """``manifest.target-file-size`` in bytes."""
        return int(self.get("manifest.target-file-size"))

    @property
    def manifest_merge_min_count(self) -> int:
        """``manifest.merge-min-count``."""
        return int(self.get("manifest.merge-min-count"))

    @property
    def manifest_full_threshold(self) -> int:
        """``manifest.full-compaction-threshold-size`` in bytes."""
        return int(self.get("manifest.full-compaction-threshold-size"))

    @property
    def commit_max_retries(self) -> int:
        """``commit.max-retries``; below 0 there is none, as for 0."""
        return int(self.get("commit.max-retries"))

    @property
    def commit_min_retry_wait(self) -> int:
        """``commit.min-retry-wait`` in ms."""
        return int(self.get("commit.min-retry-wait"))

    @property
    def commit_max_retry_wait(self) -> int:
        """``commit.max-retry-wait`` in ms."""
        return int(self.get("commit.max-retry-wait"))

    @property
    def commit_timeout(self) -> int | None:
        """``commit.timeout`` in ms; None = no limit."""
        return self._number("commit.timeout")

    @property
    def partition_default_name(self) -> str:
        """``partition.default-name``: directory of null and blank values."""
        return str(self.get("partition.default-name"))

    @property
    def partition_legacy_name(self) -> bool:
        """``partition.legacy-name``: directory names by Java's toString."""
        return bool(self.get("partition.legacy-name"))

    @property
    def delete_mode(self) -> str:
        """``dredge.delete-mode``: two-phase or direct."""
        return str(self.get("dredge.delete-mode"))

    @property
    def pre_compaction_tag(self) -> int | None:
        """``dredge.pre-compaction-tag.time-retained`` in ms; None where ``dredge.pre-compaction-tag`` is off."""
        on = self.get("dredge.pre-compaction-tag")
        return int(self.get("dredge.pre-compaction-tag.time-retained")) if on else None

    @property
    def trash_grace_expiry(self) -> int:
        """``dredge.trash-grace-expiry`` in ms; where a table sets `dredge.trash-grace` alone, that."""
        own, general = "dredge.trash-grace-expiry", "dredge.trash-grace"
        return int(self.get(general if self.is_set(general) and not self.is_set(own) else own))

    @property
    def tag_creation(self) -> str:
        """``tag.automatic-creation``: none, process-time, watermark or batch."""
        return str(self.get("tag.automatic-creation"))

    @property
    def tag_time_retained(self) -> int | None:
        """``tag.default-time-retained`` in ms; None: a tag of no other wish is kept for ever."""
        return self._number("tag.default-time-retained")

    @property
    def tag_retained_max(self) -> int | None:
        """``tag.num-retained-max``: how many automatic tags are kept (in batch mode: tags); None: all."""
        return self._number("tag.num-retained-max")

    @property
    def source_split_target(self) -> int:
        """``source.split.target-size`` in bytes."""
        return int(self.get("source.split.target-size"))

    @property
    def open_file_cost(self) -> int:
        """``source.split.open-file-cost`` in bytes."""
        return int(self.get("source.split.open-file-cost"))

    # -- the tree: when to compact, what to pick, how many runs to merge at once ------------------------------------

    @property
    def compaction_trigger(self) -> int:
        """``num-sorted-run.compaction-trigger``."""
        return int(self.get("num-sorted-run.compaction-trigger"))

    @property
    def num_levels(self) -> int:
        """``num-levels``, by default trigger + 1."""
        return self._number("num-levels") or self.compaction_trigger + 1

    @property
    def stop_trigger(self) -> int:
        """``num-sorted-run.stop-trigger``, by default trigger + 3, never below the trigger."""
        given = self._number("num-sorted-run.stop-trigger")
        return max(self.compaction_trigger, self.compaction_trigger + 3 if given is None else given)

    @property
    def sort_spill_threshold(self) -> int:
        """``sort-spill-threshold``: most inputs merged at once; by default stop trigger + 1."""
        return self._number("sort-spill-threshold") or min(self.stop_trigger + 1, _INT_MAX)

    @property
    def max_size_amplification(self) -> int:
        """``compaction.max-size-amplification-percent``."""
        return int(self.get("compaction.max-size-amplification-percent"))

    @property
    def size_ratio(self) -> int:
        """``compaction.size-ratio`` in percent."""
        return int(self.get("compaction.size-ratio"))

    @property
    def offpeak_start(self) -> int:
        """``compaction.offpeak.start.hour``, -1 = none."""
        return int(self.get("compaction.offpeak.start.hour"))

    @property
    def offpeak_end(self) -> int:
        """``compaction.offpeak.end.hour``, -1 = none."""
        return int(self.get("compaction.offpeak.end.hour"))

    @property
    def offpeak_ratio(self) -> int:
        """``compaction.offpeak-ratio`` in percent."""
        return int(self.get("compaction.offpeak-ratio"))

    @property
    def optimization_interval(self) -> int | None:
        """``compaction.optimization-interval`` in ms."""
        return self._number("compaction.optimization-interval")

    @property
    def total_size_threshold(self) -> int | None:
        """``compaction.total-size-threshold`` in bytes."""
        return self._number("compaction.total-size-threshold")

    @property
    def incremental_size_threshold(self) -> int | None:
        """``compaction.incremental-size-threshold`` in bytes."""
        return self._number("compaction.incremental-size-threshold")

    @property
    def force_up_level0(self) -> bool:
        """``compaction.force-up-level-0``."""
        return bool(self.get("compaction.force-up-level-0"))

    @property
    def needs_lookup(self) -> bool:
        """Whether keys of level 0 are looked up in older levels: readers wait for level 0 to move up (`LookupStrategy`)."""
        by_producer = self.get("changelog-producer") == "lookup" or self.get("merge-engine") == "first-row"
        return bool(by_producer or self.get("deletion-vectors.enabled") or self.get("force-lookup"))

    @property
    def lookup_compact_interval(self) -> int | None:
        """Decisions between two forced picks of level 0 with `lookup-compact` = gentle, at least the trigger; None: each forces.

        ``lookup-compact.max-interval``, by default twice the trigger.
        """
        if self.get("lookup-compact") != "gentle":
            return None
        given = self._number("lookup-compact.max-interval")
        return max(self.compaction_trigger, min(self.compaction_trigger * 2, _INT_MAX) if given is None else given)

    @property
    def force_rewrite_all(self) -> bool:
        """``compaction.force-rewrite-all-files``."""
        return bool(self.get("compaction.force-rewrite-all-files"))

    @property
    def min_file_num(self) -> int:
        """``compaction.min.file-num``: small files of an append table before they are packed."""
        return int(self.get("compaction.min.file-num"))

    @property
    def piece_size(self) -> int:
        """``dredge.compaction.piece-size``: least input bytes of a piece when a big bucket is compacted by key ranges."""
        return int(self.get("dredge.compaction.piece-size"))

    @property
    def read_threads(self) -> int | None:
        """``dredge.read.threads``: splits that one read works on at once; None = as many as there are processors."""
        return self._number("dredge.read.threads")

    @property
    def merge_budget(self) -> int:
        """``dredge.merge-budget`` in bytes: memory of one merge's windows."""
        return int(self.get("dredge.merge-budget"))

    @property
    def paimon_version(self) -> PaimonVersion:
        """``dredge.paimon-version``: whose answers are given where versions of Paimon differ."""
        return PaimonVersion(str(self.get(PAIMON_VERSION)))

    @property
    def compaction_inline(self) -> str:
        """``dredge.compaction.inline``: follow (writers compact and expire after their commits, unless `write-only`) or never."""
        return str(self.get("dredge.compaction.inline"))

    @property
    def order_sensitive(self) -> str:
        """``dredge.compaction.order-sensitive``: closed or as-paimon."""
        return str(self.get("dredge.compaction.order-sensitive"))

    @property
    def verification(self) -> str:
        """``dredge.verification``: full, sampled or counts; what a compaction proves of its output before it is published."""
        return str(self.get("dredge.verification"))

    @property
    def tombstone_retention(self) -> int:
        """``dredge.tombstone-retention`` in ms."""
        return int(self.get("dredge.tombstone-retention"))
