"""Retention of snapshots or changelogs, by options and arguments, and Paimon's rule for the expired range."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from lsm_core.errors import InvalidOption
from lsm_core.options import TableOptions, whole_number


@dataclass(frozen=True)
class RetentionPolicy:
    """Rule that decides which snapshots or changelogs to keep (Java `ExpireConfig`).

    Between ``retain_min`` and ``retain_max``, a snapshot expires if its successor is older than ``older_than_ms``. A
    changelog expires if the changelog itself is older. For changelogs, ``retain_min`` and ``retain_max`` count the
    existing snapshots too (`ExpireChangelogImpl`).

    Attributes:
        retain_min: smallest number to keep.
        retain_max: largest number to keep, None for no limit.
        older_than_ms: time (epoch ms) before which snapshots or changelogs expire.
        max_deletes: largest number to expire in one call.
        kept: "snapshot", or "changelog" for the changelogs of expired snapshots.
    """

    retain_min: int
    retain_max: int | None
    older_than_ms: int
    max_deletes: int
    kept: str = "snapshot"

    @staticmethod
    def of(
        options: TableOptions,
        now_ms: int,
        retain_max: int | None = None,
        retain_min: int | None = None,
        older_than_ms: int | None = None,
        max_deletes: int | None = None,
        kept: str = "snapshot",
    ) -> RetentionPolicy:
        """Return the policy of the table's options (`snapshot.*`, or `changelog.*`), each overridden by its argument.

        A ``retain_max`` below the minimum of the table's options lowers the minimum too, and a ``retain_min`` above the
        maximum raises the maximum, because an explicit argument has precedence. An argument of None has no effect.

        Args:
            options: options of the table.
            now_ms: time of planning (epoch ms).
            retain_max: largest number to keep.
            retain_min: smallest number to keep.
            older_than_ms: time (epoch ms) before which snapshots or changelogs expire.
            max_deletes: largest number to expire in one call.
            kept: "snapshot" or "changelog".

        Raises:
            InvalidOption: an option or argument is invalid.
        """
        most, least, age = options.retained_max, options.retained_min, options.time_retained
        if kept == "changelog":
            most, least = options.changelog_retained_max, options.changelog_retained_min
            age = options.changelog_time_retained
            if most is not None and most < least and retain_max is None and retain_min is None:
                key = "changelog.num-retained.max"
                raise InvalidOption(key, most, f"at least changelog.num-retained.min ({least})", options.table)
        for key, value in (("retain_max", retain_max), ("retain_min", retain_min), ("max_deletes", max_deletes)):
            if value is not None:
                whole_number(value, key, options.table, least=1)
        if older_than_ms is not None:
            whole_number(older_than_ms, "older_than_ms", options.table)
        highest = most if retain_max is None else retain_max
        lowest = least if retain_min is None else retain_min
        if highest is not None and highest < lowest:
            if retain_min is not None and retain_max is not None:
                raise InvalidOption("retain_max", retain_max, f"at least retain_min ({retain_min})", options.table)
            lowest, highest = (highest, highest) if retain_min is None else (lowest, lowest)
        return RetentionPolicy(
            lowest,
            highest,
            now_ms - age if older_than_ms is None else older_than_ms,
            options.expire_limit if max_deletes is None else max_deletes,
            kept,
        )

    def choose(
        self,
        earliest: int,
        latest: int,
        next_consumed: int | None,
        time_of: Callable[[int], int | None],
        newest: int | None = None,
        holds: Sequence[tuple[int, str]] = (),
    ) -> ExpiryRange:
        """Return the half-open range of expiring ids (format.md 17, successor rule of Paimon 2.0; changelogs: 17.1).

        Args:
            earliest: id of the oldest snapshot or changelog.
            latest: id of the newest snapshot.
            next_consumed: smallest snapshot id that a consumer still needs, None without consumers.
            time_of: function that returns a snapshot's commit time (epoch ms), None if its file is missing.
            newest: id of the newest changelog, which is always kept; None for snapshots.
            holds: further ids from which on everything stays, each with its reason for people.
        """
        noun = f"{self.kept}s"
        forced = earliest if self.retain_max is None else max(latest - self.retain_max + 1, earliest)
        least = f"the newest {self.retain_min} snapshots stay"
        if self.kept == "changelog":
            least = f"the changelogs of the newest {self.retain_min} snapshots stay"
        limits = [
            (latest - self.retain_min + 1, f"{least} ({self.kept}.num-retained.min)"),
            (earliest + self.max_deletes, f"one call expires at most {self.max_deletes} {noun}"),
        ]
        if next_consumed is not None:
            limits.append((next_consumed, f"a consumer still reads from snapshot {next_consumed}"))
        limits += holds
        if newest is not None:
            limits.append((newest, "the newest changelog stays"))
        end, reason = min(limits, key=lambda limit: limit[0])
        for candidate in range(min(forced, end), end):
            judged = candidate + 1 if self.kept == "snapshot" else candidate
            committed = time_of(judged)
            if committed is not None and committed >= self.older_than_ms:
                end, reason = candidate, f"{self.kept} {judged} is younger than the retention time"
                break
        return ExpiryRange(earliest, max(earliest, end), forced, reason, self.kept)


@dataclass(frozen=True)
class ExpiryRange:
    """Range of the ids of snapshots (or changelogs) that expire.

    Attributes:
        start: first expiring id.
        end: first kept id.
        forced: ids below ``forced`` expire at any age, because there are more than ``retain_max`` snapshots.
        limit: reason why the id ``end`` is kept.
        kept: "snapshot" or "changelog".
    """

    start: int
    end: int
    forced: int
    limit: str
    kept: str = "snapshot"

    @property
    def is_empty(self) -> bool:
        """Whether nothing expires."""
        return self.end <= self.start

    def reason_of(self, snapshot_id: int) -> str:
        """Return the reason of the expiry of an id.

        Args:
            snapshot_id: id of an expiring snapshot or changelog.
        """
        if snapshot_id < self.forced:
            return f"more snapshots than {self.kept}.num-retained.max"
        return f"{'it' if self.kept == 'changelog' else 'its successor'} is older than the retention time"
