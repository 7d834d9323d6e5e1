"""Options of the LSM tree: when to compact, what to pick, how many runs to merge at once; part of :class:`TableOptions`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

INT_MAX = 2**31 - 1


class TreeOptions(ABC):
    """Typed attributes over :meth:`get`; sizes in bytes, times in ms, ratios in percent."""

    @abstractmethod
    def get(self, key: str) -> Any:
        """Return the typed value of any known key, its default when unset."""

    def _number(self, key: str) -> int | None:
        value = self.get(key)
        return None if value is None else int(value)

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
        return self._number("sort-spill-threshold") or min(self.stop_trigger + 1, INT_MAX)

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
        return max(self.compaction_trigger, min(self.compaction_trigger * 2, INT_MAX) if given is None else given)

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
    def order_sensitive(self) -> str:
        """``dredge.compaction.order-sensitive``: closed or as-paimon."""
        return str(self.get("dredge.compaction.order-sensitive"))

    @property
    def tombstone_retention(self) -> int:
        """``dredge.tombstone-retention`` in ms."""
        return int(self.get("dredge.tombstone-retention"))
