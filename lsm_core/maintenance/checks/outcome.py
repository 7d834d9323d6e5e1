"""What a check is given and what it says: limits of its samples, its verdict, how much it looked at, and what breaks the promise."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa

from lsm_core.format.snapshot import Snapshot
from lsm_core.metadata.store import TableStore

HOUR_MS: Final = 60 * 60 * 1000
_SHOWN: Final = 20
_LOCAL_ROUND_BYTES: Final = 256 << 20
_CLUSTER_ROUND_BYTES: Final = 4 << 30


@dataclass(frozen=True)
class PageProblem:
    """A data file whose pages cannot be read.

    Attributes:
        file_name: name of the data file.
        reason: what the reader met; it names the path.
        damaged: whether the file is damaged; False for a feature that Dredge does not read.
    """

    file_name: str
    reason: str
    damaged: bool = True


PageReader = Callable[[TableStore, pa.Table], list[PageProblem]]
"""Decodes every page of data files and returns the files that cannot be read."""


@dataclass(frozen=True)
class DeepRead:
    """Settings of a pass over every data file.

    Attributes:
        bytes: stored bytes after which the call stops; the next call resumes the pass. None: the call ends the pass.
        reader: decoder of the files of one round, None for this process.
        round_bytes: stored bytes between two saved positions.
    """

    bytes: int | None = None
    reader: PageReader | None = None
    round_bytes: int = _LOCAL_ROUND_BYTES

    @classmethod
    def distributed(cls, reader: PageReader, limit: int | None = None) -> DeepRead:
        """Return the settings of a pass whose rounds are large enough for the tasks of a cluster."""
        return cls(limit, reader, _CLUSTER_ROUND_BYTES)


@dataclass(frozen=True)
class CheckLimits:
    """From where on a check fails, and how much it reads at most. Bytes, ms and counts.

    ``rows``: rows that a check of rows reads at most, apart from the first bucket that it looks at. ``keys``: how many of their keys are
    judged in each bucket. ``vectors``: deletion vectors that are read. ``history``: snapshots that are followed back.
    ``level0_warn`` and ``level0_critical``: level-0 files of one bucket. ``pile_warn`` and ``pile_critical``: small files of one partition of an
    append table. ``many_files``: so many files of a table that are small on average are too many. ``bucket_bytes``: of one bucket. ``small_files``: so many files of a
    partition that are small on average are too many. ``ro_lag_ms``: age of what the read-optimized view does not show. ``idle_ms``: how long
    something may be due while nothing runs. ``paused``: why maintenance rests, None where it does not. ``page_bytes``: stored bytes of the data
    files that `pages_readable` draws; ``deep``: how it reads all of them, None for a sample.
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
    idle_ms: int = 6 * HOUR_MS
    paused: str | None = None
    page_bytes: int = 64 << 20
    deep: DeepRead | None = None


@dataclass(frozen=True)
class CheckReport:
    """The verdict of one check over one snapshot (None: nothing was committed).

    ``text`` is one sentence; ``numbers`` say how much of how much was looked at; ``problems`` name the first 20 keys, files or buckets that
    break the promise. ``warn``: a failure that asks for attention and not for a stop.
    """

    check: str
    table: str
    snapshot_id: int | None
    passed: bool
    text: str
    numbers: Mapping[str, float | str] = field(default_factory=dict)
    problems: tuple[str, ...] = ()
    warn: bool = False

    @property
    def outcome(self) -> str:
        """``passed``, ``warning`` or ``failed``."""
        return "passed" if self.passed else "warning" if self.warn else "failed"

    def to_plain(self) -> dict[str, Any]:
        """The report as plain values, for JSON."""
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
class Question:
    """A check being made: of which ``store`` and ``snapshot``, within which ``limits``; ``check`` is its name, ``warn`` how its failures count."""

    check: str
    store: TableStore
    snapshot: Snapshot
    limits: CheckLimits
    warn: bool = False

    @property
    def seed(self) -> int:
        """64 bits, odd, the same for the same snapshot: whoever looks again looks at the same sample."""
        said = f"{self.store.name} {self.snapshot.id} {self.snapshot.delta_manifest_list}"
        return int.from_bytes(hashlib.sha256(said.encode()).digest()[:8]) | 1

    def passes(self, text: str, **numbers: float | str) -> CheckReport:
        """The promise holds."""
        return CheckReport(
            self.check, self.store.name, self.snapshot.id, passed=True, text=text, numbers=_said(numbers)
        )

    def fails(self, text: str, problems: Sequence[str] = (), **numbers: float | str) -> CheckReport:
        """The promise is broken: ``text`` says how, ``problems`` where."""
        return CheckReport(
            self.check,
            self.store.name,
            self.snapshot.id,
            passed=False,
            text=text,
            numbers=_said(numbers),
            problems=tuple(problems[:_SHOWN]),
            warn=self.warn,
        )


def _said(numbers: Mapping[str, float | str]) -> dict[str, float | str]:
    return {name.replace("_", " "): value for name, value in numbers.items()}


__all__ = ["HOUR_MS", "CheckLimits", "CheckReport", "DeepRead", "PageProblem", "PageReader", "Question"]
