"""Budgets hold for what sensors start: the most useful first, critical backlogs before all, and what waits says why, with its numbers."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from orchestration import names
from orchestration.health import PartitionHealth
from orchestration.policies import Decision, Outcome, Reason
from orchestration.policies.budgets import Budget, Candidate, candidate_of, most_useful_first
from tests.support.platform import bucket_health, commit, keyed_table, open_house


def due(table: str, cost: int, benefit: float = 50.0, reason: Reason = Reason.TRIGGER_REACHED) -> Candidate:
    return Candidate(Decision(table, "", Outcome.RUN, reason, "due"), cost, benefit)


def test_the_most_useful_comes_first_and_a_critical_backlog_before_all() -> None:
    candidates = [
        due("a", 100),
        due("b", 10),
        due("c", 10, 60.0),
        due("d", 10**9, 1.0, Reason.RECOVERY),
        due("e", 0, 1.0),
    ]
    assert [one.decision.table for one in most_useful_first(candidates)] == ["d", "c", "b", "e", "a"]


def test_cost_and_benefit_are_told_by_health() -> None:
    buckets = (
        bucket_health(cost_minor=10, cost_full=30, score=5.0),
        bucket_health(bucket=1, cost_minor=1, cost_full=3, score=9.0),
    )
    state = PartitionHealth("", buckets)
    merge = Decision("a.b", "", Outcome.RUN, Reason.TRIGGER_REACHED, "due")
    full = Decision("a.b", "", Outcome.RUN, Reason.IDLE, "due", full=True)
    assert [candidate_of(one, state).cost for one in (merge, full)] == [11, 33]
    assert candidate_of(merge, state).benefit == 9.0
    assert candidate_of(merge, None).cost == 0


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(0, 100), st.integers(1, 100)), max_size=12),
    st.none() | st.integers(1, 150),
    st.none() | st.integers(1, 4),
    st.integers(0, 150),
    st.sets(st.sampled_from("abcdef"), max_size=3),
)
def test_no_budget_is_broken_and_what_waits_has_a_reason(
    given: list[tuple[str, int, int]], limit: int | None, most: int | None, spent: int, at_work: set[str]
) -> None:
    budget = Budget(limit, most, spent, set(at_work))
    for candidate in most_useful_first(due(table, cost, float(score)) for table, cost, score in given):
        first = not budget.spent
        why = budget.why_not(candidate)
        if not why:
            budget.take(candidate.decision.table, candidate.cost)
            assert limit is None or first or budget.spent <= limit
            assert most is None or len(budget.at_work) <= max(most, len(at_work))
        else:
            assert limit is not None or most is not None
            over = limit is not None and budget.spent + candidate.cost > limit
            crowded = (
                most is not None and len(budget.at_work) >= most and candidate.decision.table not in budget.at_work
            )
            assert over or crowded


def test_a_tick_starts_what_its_budgets_allow_and_the_rest_later(tmp_path: Path) -> None:
    place = tmp_path / "p.yaml"
    place.write_text("budget: {concurrent_tables: 1}")
    for name, rows in (("shop.small", 5), ("shop.large", 5_000)):
        commit(keyed_table(tmp_path / "wh", name, partitioned=False), 5, rows=rows)
    with open_house(tmp_path / "wh", DREDGE_POLICIES=str(place)) as house:
        tick = house.tick(names.SORTED_RUN_SENSOR)
        (request,) = tick.run_requests
        assert request.tags[names.TAG_TABLE] == "shop.small", "the same score, for fewer bytes"
        assert int(request.tags[names.TAG_BYTES]) > 0
        assert house.run(request).success
        place.write_text(f"budget: {{bytes_an_hour: {int(request.tags[names.TAG_BYTES]) + 1}}}")
        (line,) = [line for line in house.lines(house.tick(names.SORTED_RUN_SENSOR)) if line.startswith("shop.large")]
        assert line.startswith("shop.large: decline (beyond the budget): 5 sorted runs >= 5; it reads ")
        assert "; 1 B of " in line
        place.write_text("budget: {bytes_an_hour: 1 gb, concurrent_tables: 2}")
        assert [one.tags[names.TAG_TABLE] for one in house.tick(names.SORTED_RUN_SENSOR).run_requests] == ["shop.large"]


def test_what_is_larger_than_the_whole_budget_starts_when_nothing_was_started_for_an_hour(tmp_path: Path) -> None:
    place = tmp_path / "p.yaml"
    place.write_text("budget: {bytes_an_hour: 1}")
    for name in ("shop.a", "shop.b"):
        commit(keyed_table(tmp_path / "wh", name, partitioned=False), 5)
    with open_house(tmp_path / "wh", DREDGE_POLICIES=str(place)) as house:
        assert len(house.tick(names.SORTED_RUN_SENSOR).run_requests) == 1
