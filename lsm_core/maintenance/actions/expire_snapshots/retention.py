"""What is asked of maintenance, resolved from options and arguments: retention of snapshots, and Paimon's range rule."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from lsm_core.errors import InvalidOption
from lsm_core.options import TableOptions, whole_number


@dataclass(frozen=True)
class RetentionPolicy:
    """Which snapshots stay (Java `ExpireConfig`): at least ``retain_min``, at most ``retain_max`` (None = no limit).

    Between the two, snapshots whose successor is older than ``older_than_ms`` (epoch ms) expire; one call expires at
    most ``max_deletes``.
    """

    retain_min: int
    retain_max: int | None
    older_than_ms: int
    max_deletes: int

    @staticmethod
    def of(
        options: TableOptions,
        now_ms: int,
        retain_max: int | None = None,
        retain_min: int | None = None,
        older_than_ms: int | None = None,
        max_deletes: int | None = None,
    ) -> RetentionPolicy:
        """Options of the table, each overridden by its argument where given. Raises InvalidOption.

        A ``retain_max`` below the table's own minimum lowers the minimum too: an explicit argument means what it says.
        """
        for key, value in (("retain_max", retain_max), ("retain_min", retain_min), ("max_deletes", max_deletes)):
            if value is not None:
                whole_number(value, key, options.table, least=1)
        if older_than_ms is not None:
            whole_number(older_than_ms, "older_than_ms", options.table)
        highest = options.retained_max if retain_max is None else retain_max
        lowest = options.retained_min if retain_min is None else retain_min
        if highest is not None and highest < lowest:
            if retain_min is not None and retain_max is not None:
                raise InvalidOption("retain_max", retain_max, f"at least retain_min ({retain_min})", options.table)
            lowest, highest = (highest, highest) if retain_min is None else (lowest, lowest)
        return RetentionPolicy(
            lowest,
            highest,
            now_ms - options.time_retained if older_than_ms is None else older_than_ms,
            options.expire_limit if max_deletes is None else max_deletes,
        )

    def choose(
        self, earliest: int, latest: int, next_consumed: int | None, time_of: Callable[[int], int | None]
    ) -> ExpiryRange:
        """The half-open range of ids that expires (format.md 17, successor rule of Paimon 2.0).

        ``time_of(id)`` is a snapshot's commit time (epoch ms), None where its file is missing; ``next_consumed`` the
        lowest snapshot a consumer still wants.
        """
        forced = earliest if self.retain_max is None else max(latest - self.retain_max + 1, earliest)
        limits = [
            (latest - self.retain_min + 1, f"the newest {self.retain_min} snapshots stay (snapshot.num-retained.min)"),
            (earliest + self.max_deletes, f"one call expires at most {self.max_deletes} snapshots"),
        ]
        if next_consumed is not None:
            limits.append((next_consumed, f"a consumer still reads from snapshot {next_consumed}"))
        end, reason = min(limits, key=lambda limit: limit[0])
        for candidate in range(min(forced, end), end):
            successor = time_of(candidate + 1)
            if successor is not None and successor >= self.older_than_ms:
                end, reason = candidate, f"snapshot {candidate + 1} is younger than the retention time"
                break
        return ExpiryRange(earliest, max(earliest, end), forced, reason)


@dataclass(frozen=True)
class ExpiryRange:
    """Ids ``start`` (included) to ``end`` (excluded) expire; ``limit`` says what keeps ``end``.

    Ids below ``forced`` expire because there are more than ``retain_max`` snapshots, whatever their age.
    """

    start: int
    end: int
    forced: int
    limit: str

    @property
    def is_empty(self) -> bool:
        """Whether nothing expires."""
        return self.end <= self.start

    def reason_of(self, snapshot_id: int) -> str:
        """Why this id expires."""
        if snapshot_id < self.forced:
            return "more snapshots than snapshot.num-retained.max"
        return "its successor is older than the retention time"
