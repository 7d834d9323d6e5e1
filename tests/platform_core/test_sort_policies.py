"""Append tables are sorted by policy: once a partition is idle or so often, by the policy's columns or the table's own, and once."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from dredge.platform_core import names
from dredge.platform_core.health import PartitionHealth, TableHealth
from dredge.platform_core.policies import DecisionOutcome, Reason, TableFacts
from dredge.platform_core.policies.decisions import DAY_MS, HOUR_MS, decide_idle, decide_sort, sort_rule
from dredge.platform_core.policies.policy import Policy, SortRule
from dredge.platform_core.policies.policy_files import parse_policies
from lsm_core import Catalog, Schema, Table
from lsm_core.clock import FileClock
from lsm_core.errors import InvalidOption
from lsm_core.maintenance.actions.compact.sort_order import read_sort_times
from lsm_core.options import TableOptions
from tests.support.platform import bucket_health, open_house

FIELDS = pa.schema([("dt", pa.string()), ("a", pa.int64()), ("b", pa.int64())])
IDLE = names.IDLE_SENSOR


def heap(root: Path, clock: FileClock, **options: str) -> Table:
    """An append table without buckets, partitioned by dt, of three commits into dt=a."""
    catalog = Catalog(str(root), clock=clock)
    catalog.create_database("shop", ignore_if_exists=True)
    schema = Schema(FIELDS, [], ["dt"], {"bucket": "-1", "write-only": "true", **options})
    table = catalog.create_table("shop.events", schema)
    for start in range(3):
        table.write(pa.table({"dt": ["a", "a"], "a": [start, 9 - start], "b": [5 - start, start]}, FIELDS))
    return table


def test_an_idle_partition_is_sorted_once_and_again_when_it_was_written_to(tmp_path: Path) -> None:
    root, policies, clock = tmp_path / "wh", tmp_path / "policies.yaml", FileClock(str(tmp_path / "clock"))
    clock.set(100 * DAY_MS)
    policies.write_text("tables: {shop.events: {idle_after: 2 d, sort: {by: [a], order: order}}}")
    table = heap(root, clock)
    with open_house(root, DREDGE_POLICIES=str(policies), DREDGE_CLOCK=clock.to_spec()) as house:
        clock.set(101 * DAY_MS)
        assert "shop.events/dt=a: decline (not idle): idle 1 d < 2 d (3 small files)" in house.lines(house.tick(IDLE))
        clock.set(103 * DAY_MS)
        (request,) = house.tick(IDLE).run_requests
        assert request.tags[names.TAG_ACTION] == "compact sort"
        assert request.tags[names.TAG_REASON].startswith("idle 72 h (limit 48 h), 3 files: sort compaction by a; ")
        assert house.run(request).success
        assert table.to_arrow().column("a").to_pylist() == [0, 1, 2, 7, 8, 9]
        clock.set(110 * DAY_MS)
        (line,) = house.lines(house.tick(IDLE))
        assert (
            line
            == "shop.events/dt=a: decline (one run already): sorted at 1970-04-14 00:00:00 UTC, and nothing was written since"
        )
        table.write(pa.table({"dt": ["a"], "a": [4], "b": [4]}, FIELDS))
        clock.set(113 * DAY_MS)
        assert [item.tags[names.TAG_ACTION] for item in house.tick(IDLE).run_requests] == ["compact sort"]


def test_the_ledger_says_what_was_sorted(tmp_path: Path) -> None:
    clock = FileClock(str(tmp_path / "clock"))
    clock.set(100 * DAY_MS)
    table = heap(tmp_path / "wh", clock, **{"clustering.columns": "b"})
    table.write(pa.table({"dt": ["c"], "a": [1], "b": [1]}, FIELDS))
    assert read_sort_times(table.store) == {}
    table.compact(full=True, partitions=[{"dt": "c"}])
    report = table.compact(strategy="auto", partitions=[{"dt": "a"}])
    assert report.sorted_by == "in the order of b" and "sorted in the order of b" in report.lines("shop.events")
    assert read_sort_times(table.store).keys() == {"dt=a"}
    assert read_sort_times(table.store)["dt=a"] == 100 * DAY_MS


def facts(**options: str) -> TableFacts:
    health = TableHealth("a.b", 1, 1, 0)
    return TableFacts("a.b", health, TableOptions({"bucket": "-1", **options}), append_only=True, partitioned=True)


def test_columns_come_from_the_policy_or_the_tables_option() -> None:
    columns = {"clustering.columns": "a,b"}
    assert sort_rule(facts(), Policy()) is None
    assert sort_rule(facts(**columns), Policy()) == SortRule()
    assert sort_rule(facts(**columns), Policy(sort=False)) is None
    assert sort_rule(facts(**columns, bucket="4"), Policy(sort=SortRule(("a",)))) is None
    assert sort_rule(facts(), Policy(sort=SortRule(("a",)))) == SortRule(("a",))
    assert sort_rule(facts(**columns, **{"clustering.incremental": "true"}), Policy(sort=SortRule(("a",)))) is None
    assert sort_rule(facts(), Policy(sort=SortRule())) is None
    assert SortRule(("a",), "zorder").arguments == {"strategy": "zorder", "order_by": ["a"]}


@pytest.mark.parametrize(
    ("sorted_h", "written_h", "every_h", "due"),
    [
        (None, 1, 24, True),  # never sorted
        (25, 1, 24, True),
        (23, 1, 24, False),
        (25, 26, 24, False),  # nothing was written since
        (None, 47, None, False),
        (None, 48, None, True),
    ],
)
def test_a_schedule_sorts_what_was_written_since(
    sorted_h: int | None, written_h: int, every_h: int | None, due: bool
) -> None:
    now = 1_000 * DAY_MS
    bucket = bucket_health("dt=a", files=3, newest_file_ms=now - written_h * HOUR_MS)
    partition = PartitionHealth("dt=a", (bucket,))
    rule = SortRule(("a",), "auto", None if every_h is None else every_h * HOUR_MS)
    gather = decide_idle("a.b", partition, Policy(), append=True, now_ms=now)
    when = None if sorted_h is None else now - sorted_h * HOUR_MS
    decision = decide_sort(gather, partition, Policy(idle_after_ms=2 * DAY_MS), rule, when, now)
    assert (decision.outcome is DecisionOutcome.RUN and decision.reason is Reason.UNSORTED) is due
    assert decision.sort == (rule if due else None)


def test_a_policy_file_says_how_tables_are_sorted() -> None:
    text = "defaults: {sort: {by: [a, b], order: zorder, every: 1 d}}\ntables: {'db.own': {sort: {}}, 'db.not': {sort: false}}"
    policies = parse_policies(text, "p.yaml")
    assert policies.of("db.t").sort == SortRule(("a", "b"), "zorder", DAY_MS)
    assert policies.of("db.own").sort == SortRule() and policies.of("db.not").sort is False
    with pytest.raises(InvalidOption, match="peano"):
        parse_policies("defaults: {sort: {order: peano}}", "p.yaml")
