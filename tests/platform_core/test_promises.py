"""Promises of the policy file: how they are written and inherited, and verdicts that unknown time cannot change."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dredge.platform_core.policies.policy import DAY_MS, HOUR_MS, Prices, SloTargets
from dredge.platform_core.policies.policy_files import parse_policies
from dredge.platform_core.policies.promises import WINDOW_MS, Promise, PromiseVerdict, judge_promises
from lsm_core.errors import InvalidOption
from lsm_core.maintenance.promise_history import FRESHNESS, SORTED_RUNS, TimeWithin


def test_promises_and_prices_are_inherited_one_by_one_and_false_ends_them() -> None:
    policies = parse_policies(
        """\
defaults:
  slo: {sorted_runs_p95: 8, within: 99.5 %}
  cost: {core_hour: 0.05, currency: EUR}
databases:
  shop: {slo: {freshness: 15 min}, cost: {reads_a_day: 12.5, pays_back_within: 10 d}}
tables:
  shop.old: {slo: false, cost: false}
  shop.new: {slo: {within: 90}}
""",
        "p.yaml",
    )
    orders = policies.of("shop.orders")
    assert orders.slo == SloTargets(8, 900_000, 99.5)
    assert orders.cost == Prices(core_hour=0.05, currency="EUR", reads_a_day=12.5, pays_back_within_ms=10 * DAY_MS)
    assert (orders.origin("slo.freshness"), orders.origin("slo.within")) == (
        "p.yaml:5, database shop",
        "p.yaml:2, defaults",
    )
    assert policies.of("shop.new").slo == SloTargets(8, 900_000, 90.0)
    old = policies.of("shop.old")
    assert (old.slo, old.cost) == (SloTargets(), Prices()) and not old.cost.has_prices
    assert old.origin("slo") == "p.yaml:7, shop.old" and old.origin("slo.freshness") == "built-in default"
    assert policies.of("other.t").slo == SloTargets(8, None, 99.5)


def test_a_percentage_may_have_its_unit_and_a_small_one_must() -> None:
    text = "defaults: {slo: {within: 0.5 %}, retention: {orphans: {max_share: 10 %}}, cost: {core_hour: 1.0e-3}}"
    policy = parse_policies(text, "p.yaml").of("db.t")
    assert (policy.slo.within, policy.retention["orphans"]["max_share"], policy.cost.core_hour) == (0.5, 10, 0.001)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("slo: {within: 0 %}", "percentage"),
        ("slo: {within: 101}", "percentage"),
        ("slo: {within: most}", "percentage"),
        ("slo: {within: true}", "within"),
        ("slo: {within: .nan}", "percentage"),
        ("slo: {within: 0.99}", "write '99 %', or '0.99 %'"),
        ("slo: {within: '0.99'}", "write '99 %', or '0.99 %'"),
        ("slo: {within: 1}", "write '100 %'"),
        ("slo: {within: 99,9 %}", "decimals have a point"),
        ("slo: {freshness: 15}", "15 ms .a number without a unit. is shorter than 1 s"),
        ("slo: {freshness: 1e5}", "accepted: a duration like '1 h'"),
        ("slo: {freshnes: 1 h}", "freshnes"),
        ("slo: {sorted_runs_p95: 0}", "sorted_runs_p95"),
        ("slo: true", "slo"),
        ("slo: {freshness: 0 s}", "shorter than 1 s"),
        ("cost: {core_hour: -1}", "core_hour"),
        ("cost: {core_hour: .inf}", "core_hour"),
        ("cost: {core_hour: true}", "core_hour"),
        ("cost: {core_hour: 1e300}", r"YAML 1.1 reads 1e300 as text: write 1.0e\+300"),
        ("cost: {core_hour: 2E-3}", "YAML 1.1 reads 2E-3 as text: write 2.0e-3"),
        ("cost: {core_hour: '0.05'}", "a number, without quotes"),
        ("cost: {core_hour: 0,05}", "decimals have a point"),
        ("cost: {cores: 1e1}", "a whole number; YAML 1.1 reads 1e1 as text: write digits only"),
        ("retention: {orphans: {max_share: 0.2}}", "write '20 %'"),
        ("retention: {orphans: {max_share: '.05'}}", "write '5 %'"),
        ("retention: {orphans: {max_share: 21 %}}", "max_share"),
        ("cost: {currency: <script>}", "currency"),
        ("cost: {pays_back_within: 1 min}", "shorter than 1 h"),
    ],
)
def test_an_invalid_promise_or_price_is_refused_with_its_line(text: str, message: str) -> None:
    with pytest.raises(InvalidOption, match=message) as error:
        parse_policies(f"defaults:\n  {text}\n", "p.yaml")
    assert "(line 2)" in str(error.value)


def _promise(known: int, within: int, target: float = 99.0, window: int = WINDOW_MS) -> Promise:
    return Promise(SORTED_RUNS, "8", target, TimeWithin(window, known, within, 3, is_within=True))


@given(st.integers(0, 1000), st.integers(0, 1000), st.integers(0, 1000), st.floats(0.1, 100))
def test_a_verdict_holds_whatever_happened_in_the_unknown_time(
    known: int, within: int, good: int, target: float
) -> None:
    within = min(within, known)
    verdict = _promise(known, within, target, 1000).verdict
    whole = within + min(good, 1000 - known)  # one of the possible truths
    if verdict is PromiseVerdict.KEPT:
        assert whole >= target * 10 - 1e-6
    if verdict is PromiseVerdict.BROKEN:
        assert whole < target * 10 + 1e-6
    if known == 1000:
        assert verdict is not PromiseVerdict.UNKNOWN


def test_the_text_says_verdict_share_known_time_and_current_value() -> None:
    assert _promise(2 * DAY_MS, DAY_MS).text() == (
        "sorted_runs_p95 <= 8 for 99 % of the week: broken: within it for 50.00% of the known time "
        "(2 d of 7 d known; the snapshots of the rest have expired); now 3"
    )
    assert "unknown: within it for 100.00% of the known time (2 d of 7 d" in _promise(2 * DAY_MS, 2 * DAY_MS).text()
    assert (
        ": kept: within it for 100.00% of the known time (7 d of 7 d known); now"
        in _promise(WINDOW_MS, WINDOW_MS).text()
    )
    nothing = TimeWithin(WINDOW_MS, 0, 0, None, None)
    (fresh,) = judge_promises(SloTargets(None, 90 * 60_000, 95.0), {FRESHNESS: nothing})
    assert fresh.text() == (
        "freshness <= 1.5 h for 95 % of the week: unknown: no snapshot of the week says whether it was kept"
    )
    late = TimeWithin(HOUR_MS, HOUR_MS, 0, 2 * HOUR_MS, is_within=False)
    assert judge_promises(SloTargets(None, 45_000), {FRESHNESS: late})[0].text().endswith("now 2 h")
