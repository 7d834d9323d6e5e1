"""Input and report of a check: store, snapshot and limits; verdict, counts and problems."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import pyarrow as pa

from lsm_core.format.snapshot import Snapshot
from lsm_core.maintenance.file_remedies import Remedy
from lsm_core.metadata.store import TableStore

HOUR_MS: Final = 60 * 60 * 1000
_MAX_PROBLEMS: Final = 20
_LOCAL_ROUND_BYTES: Final = 256 << 20
_CLUSTER_ROUND_BYTES: Final = 4 << 30


@dataclass(frozen=True)
class PageProblem:
    """Data file whose pages cannot be read.

    Attributes:
        file_name: name of the data file.
        reason: error message of the reader, with the path of the file.
        damaged: whether the file is damaged; False if the file uses a feature that Dredge does not read.
    """

    file_name: str
    reason: str
    damaged: bool = True


PageReader = Callable[[TableStore, pa.Table], list[PageProblem]]
"""Function that decodes every page of data files (schema `FILES_TO_READ`) and returns the files it cannot read."""


@dataclass(frozen=True)
class DeepRead:
    """Settings of `pages_readable` for a pass over every data file.

    Attributes:
        bytes: stored bytes after which the call stops, so that the next call resumes the pass. None reads all
            remaining files.
        reader: function that decodes a batch of files, None to decode in this process.
        round_bytes: stored bytes that are read between two saves of the position.
    """

    bytes: int | None = None
    reader: PageReader | None = None
    round_bytes: int = _LOCAL_ROUND_BYTES

    @classmethod
    def distributed(cls, reader: PageReader, limit: int | None = None) -> DeepRead:
        """Return the settings of a pass over all data files that are read by a cluster.

        Each round has enough bytes for many tasks of the cluster.

        Args:
            reader: function that decodes a batch of files on the cluster.
            limit: stored bytes after which the call stops, None for no limit.
        """
        return cls(limit, reader, _CLUSTER_ROUND_BYTES)


@dataclass(frozen=True)
class CheckLimits:
    """Thresholds of the checks and limits of their reads.

    Attributes:
        rows: largest number of stored rows in the buckets that a check of rows reads; one bucket is read in any case.
        keys: approximate number of keys that are checked in each bucket.
        vectors: largest number of deletion vectors that are read.
        history: largest number of snapshots that are read backwards.
        level0_warn: number of level-0 files of one bucket from which the check warns.
        level0_critical: number of level-0 files of one bucket from which the check is critical.
        pile_warn: number of small files of one partition of an append table from which the check warns.
        pile_critical: number of small files of one partition of an append table from which the check is critical.
        many_files: largest number of files that a table may have if its files are small on average.
        bucket_bytes: largest allowed bytes of a bucket.
        small_files: largest number of files that a partition may have if its files are small on average.
        ro_lag_ms: largest allowed age (ms) of rows that the read-optimized view does not show.
        iceberg_lag_ms: largest allowed age (ms) of committed rows that Iceberg readers do not see.
        idle_ms: time (ms) for which a compaction may be due while nothing runs.
        paused: reason why maintenance is paused, None if it is not paused.
        page_bytes: stored bytes of the data files that `pages_readable` samples.
        deep: settings of a read of all data files, None for a sample.
    """

    rows: int = 2_000_000
    keys: int = 1_024
    vectors: int = 1_000
    history: int = 100
    level0_warn: int = 1_000
    level0_critical: int = 10_000
    pile_warn: int = 1_000
    pile_critical: int = 10_000
    many_files: int = 1_000
    bucket_bytes: int = 8 << 30
    small_files: int = 50
    ro_lag_ms: int = 24 * HOUR_MS
    iceberg_lag_ms: int = 24 * HOUR_MS
    idle_ms: int = 6 * HOUR_MS
    paused: str | None = None
    page_bytes: int = 64 << 20
    deep: DeepRead | None = None


def join_commands(table: str, remedies: Sequence[Remedy]) -> str:
    """Return the commands of remedies in one line, each with what it loses.

    Args:
        table: full name of the table.
        remedies: the remedies, the one that keeps most first.
    """
    return ", or ".join(f"`{remedy.command(table)}`{f' ({remedy.loss})' if remedy.loss else ''}" for remedy in remedies)


@dataclass(frozen=True)
class CheckReport:
    """Result of one check over one snapshot.

    Attributes:
        check: name of the check.
        table: name of the table.
        snapshot_id: the snapshot, None if the table has none or an error ended the check.
        passed: whether the invariant of the check holds.
        text: result in one sentence.
        numbers: counts by name, for example of checked buckets and of all buckets.
        problems: the first 20 keys, files or buckets that violate the invariant.
        warn: whether a failure is only a warning that does not stop maintenance.
        damaged: names of damaged or lost data, changelog and index files.
        remedies: actions that are possible now and lead back to a healthy table.
    """

    check: str
    table: str
    snapshot_id: int | None
    passed: bool
    text: str
    numbers: Mapping[str, float | str] = field(default_factory=dict)
    problems: tuple[str, ...] = ()
    warn: bool = False
    damaged: tuple[str, ...] = ()
    remedies: tuple[Remedy, ...] = ()

    def with_damage(self, names: Sequence[str]) -> CheckReport:
        """Return the report with the names of damaged or lost files; the first 20 are kept.

        Args:
            names: names of the files, without folders.
        """
        return replace(self, damaged=tuple(dict.fromkeys(names))[:_MAX_PROBLEMS])

    @property
    def remedy_text(self) -> str:
        """Next step after the failure, as the end of a message; "" if no remedy is known."""
        if not self.remedies:
            return ""
        commands = join_commands(self.table, self.remedies)
        return f"; put the file back from a copy, or {commands}" if self.damaged else f"; repair it: {commands}"

    @property
    def outcome(self) -> str:
        """Outcome of the check: ``passed``, ``warning`` or ``failed``."""
        return "passed" if self.passed else "warning" if self.warn else "failed"

    def to_plain(self) -> dict[str, Any]:
        """Return the report as plain values for JSON."""
        return {
            "check": self.check,
            "table": self.table,
            "snapshot": self.snapshot_id,
            "outcome": self.outcome,
            "text": self.text,
            "numbers": dict(self.numbers),
            "problems": list(self.problems),
        }


@dataclass(frozen=True)
class CheckInput:
    """Input of a check.

    Attributes:
        check: name of the check.
        store: the table.
        snapshot: snapshot to check.
        limits: thresholds and limits of reads.
        warn: whether failures are warnings.
    """

    check: str
    store: TableStore
    snapshot: Snapshot
    limits: CheckLimits
    warn: bool = False

    @property
    def seed(self) -> int:
        """Random seed, the same for the same snapshot, so that repeated checks draw the same sample (odd, 64 bits)."""
        identity = f"{self.store.name} {self.snapshot.id} {self.snapshot.delta_manifest_list}"
        return int.from_bytes(hashlib.sha256(identity.encode()).digest()[:8]) | 1

    def passes(self, text: str, **numbers: float | str) -> CheckReport:
        """Return the report of a check whose invariant holds.

        Args:
            text: result in one sentence.
            numbers: counts for the report.
        """
        return CheckReport(
            self.check, self.store.name, self.snapshot.id, passed=True, text=text, numbers=_spell_names(numbers)
        )

    def fails(self, text: str, problems: Sequence[str] = (), **numbers: float | str) -> CheckReport:
        """Return the report of a check whose invariant is violated.

        Args:
            text: description of the violation in one sentence.
            problems: keys, files or buckets that violate the invariant; the first 20 are kept.
            numbers: counts for the report.
        """
        return CheckReport(
            self.check,
            self.store.name,
            self.snapshot.id,
            passed=False,
            text=text,
            numbers=_spell_names(numbers),
            problems=tuple(problems[:_MAX_PROBLEMS]),
            warn=self.warn,
        )


def _spell_names(numbers: Mapping[str, float | str]) -> dict[str, float | str]:
    return {name.replace("_", " "): value for name, value in numbers.items()}
