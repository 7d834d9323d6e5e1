"""Costs: prices of maintenance and storage, and the price of the reads that compactions save. Pure.

Savings are forecasts for reads of all data of the compacted files, from three figures. A read decodes files in a
quarter of the time in which a compaction reads, merges and writes them. Merging sorted runs makes it 1.28 times as
slow. Opening a file costs as much as `source.split.open-file-cost` bytes. All savings are upper estimates, so that only
rewrites are declined that clearly do not pay.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from dredge.platform_core.policies.policy import DAY_MS, HOUR_MS, Prices
from lsm_core.maintenance.action import size_text
from lsm_core.maintenance.actions.compact.planning import compaction_seconds
from lsm_core.maintenance.ledger import DONE, FAILED, UNKNOWN, LedgerEntry
from lsm_core.maintenance.metrics import reported_bytes

_READ_SHARE: Final = 0.25
"""Share of a compaction's time in which its files are decoded."""
_MERGE_FACTOR: Final = 1.28
"""Time of a read that merges sorted runs, in relation to a plain decode (measured on one core)."""
_TB: Final = 1e12
_GB: Final = 1e9
_MONTH_MS: Final = 30 * DAY_MS
_COMPACT: Final = frozenset({"compact", "recover"})


def price_of_work(prices: Prices, core_seconds: float, bytes_read: float) -> float:
    """Return the price of computing and of reading bytes; a missing price is 0.

    Args:
        prices: prices of the policy.
        core_seconds: seconds times cores.
        bytes_read: bytes of data files.
    """
    computed = (prices.core_hour or 0.0) * core_seconds * 1000 / HOUR_MS
    return computed + (prices.tb_scanned or 0.0) * bytes_read / _TB


def price_of_storage(prices: Prices, size: float, span_ms: float) -> float:
    """Return the price of storing bytes for a time; a missing price is 0.

    Args:
        prices: prices of the policy.
        size: stored bytes.
        span_ms: time (ms).
    """
    return (prices.gb_month or 0.0) * size / _GB * span_ms / _MONTH_MS


@dataclass(frozen=True)
class Rewrite:
    """A compaction, done or forecast.

    Attributes:
        core_seconds: seconds times cores.
        bytes_in: bytes of the files that it reads.
        bytes_out: bytes of the files that it writes.
        files_saved: number of files that reads need not open afterwards.
        merges: whether reads had to merge the files.
    """

    core_seconds: float
    bytes_in: float
    bytes_out: float
    files_saved: float = 0.0
    merges: bool = True

    def saving(self, prices: Prices, open_file_cost: int) -> float:
        """Return the price that one read of all these files saves afterwards, at least 0.

        Args:
            prices: prices of the policy.
            open_file_cost: bytes that opening a file is worth.
        """
        decode = self.core_seconds * _READ_SHARE
        before = decode * (_MERGE_FACTOR if self.merges else 1.0)
        after = decode * self.bytes_out / self.bytes_in if self.bytes_in > 0 else 0.0
        opening = compaction_seconds(int(max(self.files_saved, 0.0) * open_file_cost), 0) * _READ_SHARE
        saved_bytes = max(self.bytes_in - self.bytes_out, 0.0)
        return price_of_work(prices, max(before - after, 0.0) + opening, saved_bytes)


@dataclass(frozen=True)
class Worth:
    """Cost of a compaction against the saving of the reads that follow.

    Attributes:
        rewrite: the compaction.
        cost: price of the compaction.
        saving: price that all reads within `span_ms` save because of the compaction.
        reads_a_day: expected reads per day.
        span_ms: time after the compaction in which reads are counted (ms).
        currency: label of the prices.
    """

    rewrite: Rewrite
    cost: float
    saving: float
    reads_a_day: float
    span_ms: int
    currency: str

    @property
    def pays(self) -> bool:
        """Whether the compaction's saving of reads is at least its cost."""
        return self.saving >= self.cost

    def text(self) -> str:
        """Return the cost and the saving of the compaction as text, with the numbers they were computed from."""
        days = f"{self.span_ms / DAY_MS:.3g} d"
        return (
            f"costs {money_text(self.cost, self.currency)} ({self.rewrite.core_seconds:,.3g} core seconds, "
            f"{size_text(int(self.rewrite.bytes_in))} read), and {self.reads_a_day:g} reads a day save "
            f"{money_text(self.saving, self.currency)} in {days}"
        )


def weigh(
    prices: Prices,
    size: int,
    *,
    seconds: float,
    bytes_out: float,
    files_saved: int,
    merges: bool,
    open_file_cost: int,
    span_ms: int,
) -> Worth | None:
    """Return the forecast cost and saving of a compaction.

    Args:
        prices: prices of the policy.
        size: bytes of the files to read.
        seconds: forecast seconds of the compaction.
        bytes_out: forecast of the written bytes, as a share (0 to 1) of `size`.
        files_saved: number of files that reads need not open afterwards.
        merges: whether reads have to merge the files.
        open_file_cost: bytes that opening a file is worth.
        span_ms: time in which the reads must pay for the compaction (ms).

    Returns:
        Cost and saving, or None if prices of work or the number of reads are unknown.
    """
    if prices.reads_a_day is None or not prices.weighs_rewrites:
        return None
    rewrite = Rewrite(seconds * prices.cores, size, size * bytes_out, files_saved, merges)
    reads = prices.reads_a_day * span_ms / DAY_MS
    cost = price_of_work(prices, rewrite.core_seconds, size)
    saving = reads * rewrite.saving(prices, open_file_cost)
    return Worth(rewrite, cost, saving, prices.reads_a_day, span_ms, prices.currency)


def money_text(price: float, currency: str) -> str:
    """Return a price with its currency: two decimals for 0 and from 1 on, three significant digits below 1."""
    return f"{price:,.2f} {currency}" if price >= 1 or price == 0 else f"{price:.3g} {currency}"


@dataclass(frozen=True)
class Month:
    """A calendar month in UTC.

    Attributes:
        text: the month, like "2026-11".
        begin_ms: begin (epoch ms).
        end_ms: end, which is the begin of the next month (epoch ms).
    """

    text: str
    begin_ms: int
    end_ms: int

    @staticmethod
    def last(count: int, now_ms: int) -> list[Month]:
        """Return the newest months, the current one last.

        Args:
            count: number of months.
            now_ms: current time (epoch ms).
        """
        today = datetime.datetime.fromtimestamp(now_ms / 1000, datetime.UTC)
        number = today.year * 12 + today.month - 1
        return [_month(index) for index in range(max(number - count + 1, 12), number + 1)]


def _month(number: int) -> Month:
    begin, end = (
        int(datetime.datetime(index // 12, index % 12 + 1, 1, tzinfo=datetime.UTC).timestamp() * 1000)
        for index in (number, number + 1)
    )
    return Month(f"{number // 12:04d}-{number % 12 + 1:02d}", begin, end)


@dataclass(frozen=True)
class CostLine:
    """Costs of one table, or of several, in one month.

    Attributes:
        month: the month, like "2026-11".
        table: full name of the table, or for several tables their number, like "3 tables".
        owner: owners of the table, or "-".
        currency: label of the prices.
        runs: runs of maintenance in the ledger.
        seconds: wall-clock seconds of the runs.
        bytes_read: bytes that the runs read.
        work: price of the runs.
        live_bytes: bytes of live data files now; None in past months.
        held_bytes: bytes of old files that snapshots, tags, branches and plans keep now; None in past months.
        storage: price of storing all these bytes from the start of the month, or of the table, until now; None in past
            months.
        saved: price of the reads that the compactions of the month saved until now; None if the reads are unknown.
    """

    month: str
    table: str
    owner: str
    currency: str
    runs: int = 0
    seconds: float = 0.0
    bytes_read: int = 0
    work: float = 0.0
    live_bytes: int | None = None
    held_bytes: int | None = None
    storage: float | None = None
    saved: float | None = None

    @property
    def total(self) -> float:
        """Price of runs and storage."""
        return self.work + (self.storage or 0.0)


@dataclass(frozen=True)
class StoredBytes:
    """Bytes of a table's files now.

    Attributes:
        live: bytes of live data files.
        held: bytes of old files that snapshots, tags, branches and plans keep.
        since_ms: creation of the table (epoch ms).
    """

    live: int
    held: int
    since_ms: int = 0


def cost_lines(
    table: str,
    owner: str,
    prices: Prices,
    entries: Iterable[LedgerEntry],
    months: Sequence[Month],
    now_ms: int,
    *,
    stored: StoredBytes | None,
    open_file_cost: int,
) -> list[CostLine]:
    """Return the costs of a table by month.

    Runs that failed, or whose result is unknown, cost as much as others. A compaction saves reads until the next
    compaction of the table, at most for `cost.pays_back_within`.

    Args:
        table: full name of the table.
        owner: owners of the table as text.
        prices: prices of the policy.
        entries: runs of the ledger, oldest first; the runs of earlier months are skipped.
        months: months, the oldest first.
        now_ms: current time (epoch ms).
        stored: bytes of the table's files, or None if they are unknown.
        open_file_cost: bytes that opening a file is worth.
    """
    if not months:
        return []
    runs = [_Run.of(entry) for entry in entries if months[0].begin_ms <= entry.time_ms < months[-1].end_ms]
    savings = list(_savings(runs, prices, now_ms, open_file_cost))
    lines = []
    for month in months:
        own = [
            (run, saving)
            for run, saving in zip(runs, savings, strict=True)
            if month.begin_ms <= run.time_ms < month.end_ms
        ]
        is_current = month.begin_ms <= now_ms < month.end_ms
        known = stored if is_current else None
        lines.append(
            CostLine(
                month.text,
                table,
                owner,
                prices.currency,
                len(own),
                sum(run.seconds for run, _ in own),
                sum(run.bytes_in for run, _ in own),
                sum(price_of_work(prices, run.seconds * prices.cores, run.bytes_in) for run, _ in own),
                None if known is None else known.live,
                None if known is None else known.held,
                None
                if known is None or prices.gb_month is None
                else price_of_storage(prices, known.live + known.held, now_ms - max(month.begin_ms, known.since_ms)),
                None if prices.reads_a_day is None else sum(saving for _, saving in own),
            )
        )
    return lines


@dataclass(frozen=True)
class _Run:
    """Figures of one run of the ledger that count for costs."""

    time_ms: int
    seconds: float
    bytes_in: int
    bytes_out: int
    files_saved: int
    compacted: bool

    @staticmethod
    def of(entry: LedgerEntry) -> _Run:
        counts = entry.outcome in (DONE, FAILED, UNKNOWN)
        seconds = entry.seconds if entry.seconds is not None and 0 <= entry.seconds < 1e9 and counts else 0.0
        bytes_in, bytes_out = (reported_bytes(entry, name) for name in ("bytes_in", "bytes_out"))
        saved = reported_bytes(entry, "files_in") - reported_bytes(entry, "files_out")
        compacted = entry.outcome == DONE and entry.action in _COMPACT and bytes_in > 0
        return _Run(entry.time_ms, seconds, bytes_in, bytes_out, max(saved, 0), compacted)


def _savings(runs: Sequence[_Run], prices: Prices, now_ms: int, open_file_cost: int) -> Iterator[float]:
    """Yield, for each run, the price of the reads that it saved until the next compaction or until now.

    The price is 0 for a run that is no compaction, and if the number of reads per day is unknown.
    """
    ends: list[int] = []
    following = now_ms
    for run in reversed(runs):
        ends.append(following)
        following = run.time_ms if run.compacted else following
    for run, end in zip(runs, reversed(ends), strict=True):
        if not run.compacted or prices.reads_a_day is None:
            yield 0.0
            continue
        span = min(max(end - run.time_ms, 0), prices.pays_back_within_ms)
        rewrite = Rewrite(run.seconds * prices.cores, run.bytes_in, run.bytes_out, run.files_saved)
        yield prices.reads_a_day * span / DAY_MS * rewrite.saving(prices, open_file_cost)


def sum_by_owner(lines: Iterable[CostLine]) -> list[CostLine]:
    """Return the sums of the lines with the same month, owner and currency, the most expensive of a month first.

    Args:
        lines: lines of tables.
    """
    groups: dict[tuple[str, str, str], list[CostLine]] = {}
    for line in lines:
        groups.setdefault((line.month, line.owner, line.currency), []).append(line)
    sums = [
        CostLine(
            month,
            f"{len(group)} table{'s' if len(group) != 1 else ''}",
            owner,
            currency,
            sum(line.runs for line in group),
            sum(line.seconds for line in group),
            sum(line.bytes_read for line in group),
            sum(line.work for line in group),
            _sum_known(line.live_bytes for line in group),
            _sum_known(line.held_bytes for line in group),
            _sum_known(line.storage for line in group),
            _sum_known(line.saved for line in group),
        )
        for (month, owner, currency), group in groups.items()
    ]
    return sorted(sums, key=lambda line: (line.month, -line.total, line.owner))


def _sum_known(values: Iterable[float | None]) -> Any:
    """Return the sum of the known values, None if no value is known."""
    known = [value for value in values if value is not None]
    return sum(known) if known else None
