"""Costs: prices of runs and storage, saved reads, and compactions that are declined because they do not pay."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dredge.platform_core.health import TableHealth
from dredge.platform_core.policies.costs import (
    CostLine,
    Month,
    Rewrite,
    StoredBytes,
    cost_lines,
    money_text,
    price_of_storage,
    price_of_work,
    sum_by_owner,
    weigh,
)
from dredge.platform_core.policies.decisions import (
    DecisionOutcome,
    DecisionScope,
    Now,
    Reason,
    TableFacts,
    decide_all,
    due_work,
)
from dredge.platform_core.policies.policy import DAY_MS, HOUR_MS, Policy, Prices, SortRule
from lsm_core.maintenance.actions.compact.planning import Calibration
from lsm_core.maintenance.ledger import LedgerEntry
from lsm_core.options import TableOptions
from tests.support.platform import bucket_health

_NOW = 1_795_000_000_000  # 18 November 2026
_PRICES = Prices(core_hour=0.36, cores=10, tb_scanned=5.0, gb_month=0.03, currency="EUR", reads_a_day=24.0)
_OPEN = 4 << 20


def test_prices_of_work_and_storage() -> None:
    assert price_of_work(_PRICES, 3600, 2e12) == pytest.approx(0.36 + 10)
    assert price_of_work(Prices(core_hour=1), 1800, 1e15) == 0.5
    assert price_of_storage(_PRICES, 100e9, 15 * DAY_MS) == pytest.approx(1.5)
    assert price_of_storage(Prices(), 1e9, DAY_MS) == 0
    assert [money_text(price, "EUR") for price in (0, 0.00012345, 0.5, 1234.5)] == [
        "0.00 EUR",
        "0.000123 EUR",
        "0.5 EUR",
        "1,234.50 EUR",
    ]


def test_the_saving_of_a_read_is_the_merge_the_dropped_bytes_and_the_files_not_opened() -> None:
    # 1,000 core seconds of compaction: 250 to decode, 320 with a merge; half of the bytes remain, 125 to decode.
    rewrite = Rewrite(1_000, 2e12, 1e12)
    assert rewrite.saving(_PRICES, _OPEN) == pytest.approx(0.36 * 195 / 3600 + 5)
    assert replace(rewrite, merges=False).saving(_PRICES, _OPEN) == pytest.approx(0.36 * 125 / 3600 + 5)
    opened = replace(rewrite, files_saved=1_000).saving(_PRICES, _OPEN) - rewrite.saving(_PRICES, _OPEN)
    assert opened == pytest.approx(0.36 / 3600 * 0.25 * 1_000 * _OPEN / 25e6)
    assert Rewrite(10, 5, 10_000).saving(_PRICES, _OPEN) == 0  # a rewrite that grows saves nothing
    assert Rewrite(0, 0, 0).saving(_PRICES, _OPEN) == 0


@given(
    st.floats(0, 1e4),
    st.floats(0, 100),
    st.floats(0, 1e6),
    st.integers(0, 10**15),
    st.floats(0, 2),
    st.integers(0, 10**5),
    st.booleans(),
    st.integers(0, 1000 * DAY_MS),
)
def test_more_reads_or_more_time_never_make_a_rewrite_worth_less(
    core_hour: float, tb: float, reads: float, size: int, out: float, files: int, merges: bool, span: int
) -> None:
    prices = Prices(core_hour=core_hour, tb_scanned=tb, reads_a_day=reads)

    def worth(prices: Prices, span_ms: int) -> tuple[float, float]:
        result = weigh(
            prices,
            size,
            seconds=1.0,
            bytes_out=out,
            files_saved=files,
            merges=merges,
            open_file_cost=_OPEN,
            span_ms=span_ms,
        )
        assert result is not None
        assert result.pays == (result.saving >= result.cost)
        assert result.cost >= 0 <= result.saving
        return result.cost, result.saving

    cost, saving = worth(prices, span)
    assert worth(replace(prices, reads_a_day=reads * 2 + 1), span) >= (cost, saving)
    assert worth(prices, span * 2 + 1) >= (cost, saving)


def _facts(
    *, level0: int = 5, hidden: int = 0, rows: int = 1_000, deletes: int = 0, size: int = 25_000_000
) -> TableFacts:
    bucket = bucket_health(
        "",
        sorted_runs=6,
        level0_files=level0,
        cost_minor=size,
        cost_full=size,
        rows=rows,
        deletes=deletes,
        hidden_rows=hidden,
        bytes_per_level={0: size},
        oldest_level0_ms=_NOW - HOUR_MS,
        newest_file_ms=_NOW - HOUR_MS,
    )
    return TableFacts("a.b", TableHealth("a.b", 1, 1, _NOW, (bucket,)), TableOptions({}, "a.b"))


def _decide(facts: TableFacts, policy: Policy) -> tuple[DecisionOutcome, Reason, str]:
    (decision,) = decide_all(facts, DecisionScope.SORTED_RUNS, lambda _: policy, Now(_NOW, _NOW))
    return decision.outcome, decision.reason, decision.text


_RARELY = Policy(cost=Prices(core_hour=1.0, currency="EUR", reads_a_day=0.5, pays_back_within_ms=2 * DAY_MS))


def test_a_compaction_that_costs_more_than_it_saves_is_declined_with_both_numbers() -> None:
    outcome, reason, text = _decide(_facts(), _RARELY)
    assert (outcome, reason) == (DecisionOutcome.DECLINE, Reason.COST)
    # 25 MB take 1.1 s: 0.000306 EUR. A read saves 0.28 x 1.1 / 4 s and 5 files of 4 MiB (0.21 s): 7.96e-05 EUR.
    assert text == (
        "6 sorted runs >= 5; costs 0.000306 EUR (1.1 core seconds, 24 MiB read), "
        "and 0.5 reads a day save 7.96e-05 EUR in 2 d: not worth a run (built-in default)"
    )
    assert not due_work(_facts(), lambda _: _RARELY, Now(_NOW, _NOW))  # so nothing is overdue


@pytest.mark.parametrize(
    ("facts", "policy"),
    [
        (_facts(level0=10_000), _RARELY),
        (_facts(hidden=1), _RARELY),
        (_facts(), replace(_RARELY, cost=replace(_RARELY.cost, reads_a_day=None))),
        (_facts(), replace(_RARELY, cost=replace(_RARELY.cost, core_hour=None))),
        (_facts(), replace(_RARELY, cost=replace(_RARELY.cost, core_hour=None, gb_month=1.0))),
        (_facts(), replace(_RARELY, cost=replace(_RARELY.cost, reads_a_day=5.0))),
        (_facts(), replace(_RARELY, cost=replace(_RARELY.cost, pays_back_within_ms=20 * DAY_MS))),
    ],
    ids=["critical", "invisible rows", "reads unknown", "no price", "only storage", "read often", "much time"],
)
def test_a_compaction_runs_if_it_pays_or_if_money_is_not_the_point(facts: TableFacts, policy: Policy) -> None:
    assert _decide(facts, policy)[:2] == (DecisionOutcome.RUN, Reason.TRIGGER_REACHED)


def test_former_runs_of_the_table_calibrate_cost_and_saving() -> None:
    slow = replace(_facts(), calibration=Calibration(3, seconds=10.0, bytes_out=1.0))
    assert "11 core seconds" in _decide(slow, _RARELY)[2]
    many = replace(_RARELY, cost=replace(_RARELY.cost, reads_a_day=1.0, tb_scanned=5.0, core_hour=0.0))
    assert _decide(_facts(), many)[1] is Reason.COST
    shrinks = replace(_facts(), calibration=Calibration(3, seconds=1.0, bytes_out=0.4))
    assert _decide(shrinks, many)[1] is Reason.TRIGGER_REACHED  # each of two reads is spared 60 % of the bytes
    assert _decide(_facts(deletes=600), many)[1] is Reason.TRIGGER_REACHED  # so it is if 60 % of the rows are deletes


def test_a_sort_is_never_declined_for_its_cost() -> None:
    bucket = bucket_health("", sorted_runs=0, small_files=20, files=20, newest_file_ms=_NOW - 30 * DAY_MS, rows=10)
    facts = TableFacts(
        "a.b",
        TableHealth("a.b", 1, 1, _NOW, (bucket,)),
        TableOptions({"bucket": "-1"}, "a.b"),
        append_only=True,
        sorted_ms={},
    )
    policy = Policy(sort=SortRule(("a",)), cost=Prices(core_hour=1, reads_a_day=0))
    (decision,) = decide_all(facts, DecisionScope.IDLE, lambda _: policy, Now(_NOW, _NOW))
    assert decision.reason is Reason.UNSORTED
    (decision,) = decide_all(facts, DecisionScope.IDLE, lambda _: replace(policy, sort=False), Now(_NOW, _NOW))
    assert decision.reason is Reason.COST


def test_reads_after_the_partition_expired_save_nothing() -> None:
    bucket = replace(_facts().health.buckets[0], partition={"dt": "2026-11-16"}, partition_text="dt=2026-11-16")
    facts = replace(_facts(), health=TableHealth("a.b", 1, 1, _NOW, (bucket,)), partitioned=True)
    policy = replace(_RARELY, cost=replace(_RARELY.cost, pays_back_within_ms=30 * DAY_MS))
    assert _decide(facts, policy)[1] is Reason.TRIGGER_REACHED
    # It is dropped after five days, at midnight of 21 November: 2.54 days remain.
    expiring = replace(policy, retention={"partitions": {"older_than_ms": 5 * DAY_MS}})
    _outcome, reason, text = _decide(facts, expiring)
    assert reason is Reason.COST and "in 2.54 d" in text, text


def _entry(day: float, **changes: object) -> LedgerEntry:
    (month,) = Month.last(1, _NOW)
    report = {"bytes_in": 10**12, "bytes_out": 5 * 10**11, "files_in": 12, "files_out": 2}
    entry = LedgerEntry(
        "id", "compact", "a.b", month.begin_ms + int(day * DAY_MS), "done", seconds=360.0, report=report
    )
    return replace(entry, **changes)  # type: ignore[arg-type]


def test_months_are_calendar_months_in_utc() -> None:
    months = Month.last(3, _NOW)
    assert [month.text for month in months] == ["2026-09", "2026-10", "2026-11"]
    assert all(before.end_ms == after.begin_ms for before, after in itertools.pairwise(months))
    assert [month.text for month in Month.last(2, 1_767_225_600_000)] == ["2025-12", "2026-01"]
    assert months[-1].end_ms - months[-1].begin_ms == 30 * DAY_MS


def test_a_months_line_has_runs_storage_and_saved_reads() -> None:
    months = Month.last(2, _NOW)
    entries = [
        _entry(-40),  # two months ago
        _entry(-1, action="expire_snapshots", report={}),
        _entry(2),
        _entry(4, outcome="failed", seconds=36.0, report={}),
        _entry(5, outcome="refused", seconds=1e6, report={}),
        _entry(6, seconds=float("inf"), report={"bytes_in": "much"}),
        _entry(10),
    ]
    before, line = cost_lines(
        "a.b", "team:a", _PRICES, entries, months, _NOW, stored=StoredBytes(10**12, 10**11), open_file_cost=0
    )
    assert (before.runs, before.seconds, before.storage, before.live_bytes) == (1, 360.0, None, None)
    assert (line.runs, line.seconds, line.bytes_read) == (5, 756.0, 2 * 10**12)
    assert line.work == pytest.approx(0.36 * 10 * 756 / 3600 + 2 * 5)
    assert line.storage == pytest.approx(0.03 * 1100 * (_NOW - months[1].begin_ms) / (30 * DAY_MS))
    # The first compaction saves reads for the 8 days until the second one, which saves them until now.
    each = Rewrite(3600, 1e12, 5e11).saving(_PRICES, 0)
    days = 8 + (_NOW - months[1].begin_ms) / DAY_MS - 10
    assert line.saved == pytest.approx(24 * days * each)
    limited = replace(_PRICES, pays_back_within_ms=DAY_MS)
    _, line = cost_lines("a.b", "-", limited, entries, months, _NOW, stored=None, open_file_cost=0)
    assert (line.saved, line.storage) == (pytest.approx(24 * 2 * each), None)
    unread = replace(_PRICES, reads_a_day=None)
    assert cost_lines("a.b", "-", unread, entries, months, _NOW, stored=None, open_file_cost=0)[1].saved is None


def test_owners_are_summed_by_month_and_currency() -> None:
    lines = [
        CostLine("2026-11", "a.x", "team:a", "EUR", 1, 2.0, 3, 4.0, 5, 6, 7.0, None),
        CostLine("2026-11", "a.y", "team:a", "EUR", 1, 2.0, 3, 4.0, None, None, None, 2.0),
        CostLine("2026-11", "a.z", "team:a", "USD", work=1.0),
        CostLine("2026-10", "a.x", "team:b", "EUR", work=9.0),
    ]
    assert sum_by_owner(lines) == [
        CostLine("2026-10", "1 table", "team:b", "EUR", work=9.0),
        CostLine("2026-11", "2 tables", "team:a", "EUR", 2, 4.0, 6, 8.0, 5, 6, 7.0, 2.0),
        CostLine("2026-11", "1 table", "team:a", "USD", work=1.0),
    ]
