"""Health tells the truth about a bucket from its metadata: checked against slow counting."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from lsm_core.maintenance.actions.compact.planning import Calibration, calibrate
from lsm_core.maintenance.actions.compact.unit_choice import FileColumns, decide, decide_by_sizes
from lsm_core.maintenance.history_health import HistoryHealth
from lsm_core.maintenance.ledger import LedgerEntry
from lsm_core.maintenance.score import Part, ScoreFigures, history_parts, score, score_parts
from lsm_core.maintenance.table_ranking import need_of
from lsm_core.metadata import manifests, snapshots
from lsm_core.metadata.live_files import tree_files
from lsm_core.options import TableOptions
from lsm_core.storage import FaultyFileIO, LocalFileIO
from lsm_core.table import Schema, Table
from lsm_core.tree import DataFile, Decline, DeclineReason, newest_first
from tests.maintenance.tables import HOUR, NOW, catalog, keyed, rows, with_io
from tests.support.platform import bucket_health


def test_health_counts_files_runs_levels_and_deletes(tmp_path: Path) -> None:
    table = keyed(tmp_path)
    table.write(rows(range(100)))
    table.compact(full=True)
    table.store.clock.advance(HOUR)
    table.write(rows(range(50, 60)), row_kinds=pa.array(["+I"] * 5 + ["-D"] * 5))
    table.store.clock.advance(HOUR)
    table.write(rows(range(200, 210)))
    table.store.clock.advance(HOUR)
    (bucket,) = table.health()
    assert (bucket.level0_files, bucket.sorted_runs, bucket.files) == (2, 3, 3)
    assert set(bucket.bytes_per_level) == {0, 5}
    assert bucket.total_bytes == sum(bucket.bytes_per_level.values())
    assert (bucket.rows, bucket.deletes) == (120, 5)
    assert bucket.delete_ratio == pytest.approx(5 / 120, abs=1e-4)
    assert bucket.space_amplification == pytest.approx(bucket.total_bytes / bucket.bytes_per_level[5], abs=0.001)
    assert (bucket.overlap_max, bucket.read_amplification) == (2, 3.0)
    # 100 rows of keys 0-99 in three stretches, the middle one under two runs; 10 rows wholly under two; 10 alone
    assert bucket.overlap_mean == pytest.approx((100 * 4 / 3 + 10 * 2 + 10) / 120, abs=0.001)
    assert bucket.oldest_level0_ms == NOW + HOUR
    assert bucket.newest_file_ms == NOW + 2 * HOUR
    assert bucket.last_compaction_ms is None  # a lone file is upgraded: nothing was rewritten
    assert bucket.ro_lag_ms == 2 * HOUR
    assert (bucket.cost_minor, bucket.cost_full) == (0, bucket.total_bytes)


def test_minor_cost_is_what_the_next_compaction_reads(tmp_path: Path) -> None:
    table = keyed(tmp_path, bucket="2", source__split__target_size="1 kb")
    for i in range(5):
        table.write(rows(range(40), v=i))
    plan = table.plan_maintenance("compact")
    costs = {item.bucket: item.bytes_in for item in plan.items}
    assert {h.bucket: h.cost_minor for h in table.health()} == costs
    assert all(h.score == 100.0 and "5 sorted runs >= 5" in h.reasons for h in table.health())


_RULES: dict[str, dict[str, str]] = {
    "defaults": {},
    "level 0 is forced up": {"compaction.force-up-level-0": "true"},
    "lookup": {"changelog-producer": "lookup"},
    "gentle lookup": {"changelog-producer": "lookup", "lookup-compact": "gentle"},
    "total size": {"compaction.total-size-threshold": "200 b"},
    "incremental size": {"compaction.incremental-size-threshold": "100 b"},
    "interval": {"compaction.optimization-interval": "1 s"},
    "Paimon 2.1": {"dredge.paimon-version": "2.1"},
    "few levels": {"num-sorted-run.compaction-trigger": "2", "num-levels": "3"},
    "order-sensitive": {"merge-engine": "partial-update"},
    "as Paimon": {"merge-engine": "partial-update", "dredge.compaction.order-sensitive": "as-paimon"},
}


@pytest.mark.parametrize("rules", _RULES)
def test_arrays_decide_as_objects_for_each_file_do(tmp_path: Path, rules: str) -> None:
    store = keyed(tmp_path, **_RULES[rules]).store
    random = np.random.default_rng(int(os.environ.get("DREDGE_SEED", "7")))
    decided = 0
    for _ in range(int(os.environ.get("DREDGE_BUCKETS", "60"))):
        files = [_random_file(random) for _ in range(random.integers(1, 14))]
        numbers = (
            np.array([getattr(file, name) for file in files], np.int64)
            for name in ("level", "size", "min_sequence", "max_sequence", "creation_ms")
        )
        deletes = np.array([file.delete_row_count != 0 for file in files])
        columns = FileColumns(*numbers, deletes, pa.chunked_array([[file.name for file in files]]))
        assert [files[at] for at in columns.newest_first()] == list(newest_first(f for f in files if f.level == 0))
        now = int(random.choice([200, 6_000, 10_000]))
        by_sizes = decide_by_sizes(store, columns, now)
        if by_sizes is None:  # it depends on the keys
            assert rules == "order-sensitive"
            continue
        decision = decide(store, files, now)
        reason = decision.reason if isinstance(decision, Decline) else decision.trigger
        cost = 0 if isinstance(decision, Decline) else decision.unit.size
        assert (by_sizes.cost, by_sizes.reason, by_sizes.facts) == (cost, reason, decision.facts)
        decided += 1
    assert decided


def _random_file(random: np.random.Generator) -> DataFile:
    level, first = random.choice([0, 0, 0, 0, 1, 2, 3, 4, 5, 7]), int(random.integers(0, 100))
    return DataFile(
        name=f"f{random.integers(0, 10**6)}",
        level=int(level),
        size=int(random.choice([1, 10, 10, 50, 200, 1_000])),
        min_key=b"%03d" % first,
        max_key=b"%03d" % (first + random.integers(0, 30)),
        row_count=10,
        min_sequence=int(random.integers(0, 3)),
        max_sequence=int(random.integers(3, 6)),
        creation_ms=int(random.choice([0, 100, 5_000])),
        delete_row_count=random.choice([0, 0, 0, 1, None]),
    )


def test_the_numbers_below_the_trigger_are_those_that_the_tree_weighs(tmp_path: Path) -> None:
    table = keyed(tmp_path)
    for i in range(4):
        table.write(rows(range(40 + i), v=i))
    (bucket,) = table.health()
    snapshot = snapshots.latest(table.store)
    assert snapshot is not None
    message = decide(table.store, tree_files(table.store, manifests.live_entries(table.store, snapshot)), NOW)
    assert isinstance(message, Decline) and message.reason is DeclineReason.TOO_FEW_RUNS
    assert bucket.decision == "too-few-runs"
    assert len(bucket.facts) >= 6 and bucket.facts.items() <= message.facts.items()


def test_above_the_trigger_health_says_which_rule_picks(tmp_path: Path) -> None:
    table = keyed(tmp_path)
    for i in range(5):
        table.write(rows(range(40), v=i))
    (bucket,) = table.health()
    assert bucket.decision == table.plan_maintenance("compact").items[0].trigger
    assert (bucket.facts["sorted_runs"], bucket.cost_minor) == (5, bucket.total_bytes)


def test_a_small_tree_asks_for_nothing_before_its_trigger_and_then_for_everything(tmp_path: Path) -> None:
    table = keyed(tmp_path, bucket="1", **{"compaction.total-size-threshold": "4mb"})
    for i in range(4):
        table.write(rows(range(40), v=i))
    (bucket,) = table.health()
    (planned,) = table.plan_maintenance("compact").items
    assert (bucket.cost_minor, bucket.decision) == (0, "total-size-threshold")
    assert bucket.facts["total_bytes"] == bucket.total_bytes == planned.bytes_in
    table.write(rows(range(40), v=4))
    assert [h.cost_minor == h.total_bytes for h in table.health()] == [True]


def test_health_opens_no_data_file(tmp_path: Path) -> None:
    table = keyed(tmp_path, bucket="2")
    for i in range(6):
        table.write(rows(range(40), v=i))
    counting = FaultyFileIO(LocalFileIO())
    with_io(table, counting).health()
    assert not [path for _, path in counting.log if "bucket-" in path]


def test_partitions_choose_and_carry_typed_values(tmp_path: Path) -> None:
    schema = pa.schema([pa.field("k", pa.int32(), nullable=False), pa.field("d", pa.date32(), nullable=False)])
    table = catalog(tmp_path).create_table("db.d", Schema(schema, ["k", "d"], ["d"], {"bucket": "1"}))
    import datetime as dt

    days = [dt.date(2024, 1, 1), dt.date(2024, 1, 2)]
    table.write(pa.table({"k": [1, 2], "d": days}, schema=schema))
    assert [h.partition for h in table.health()] == [{"d": day} for day in days]
    assert [h.partition_text for h in table.health({"d": days[1]})] == ["d=19724"]


def test_append_tables_have_no_runs_but_small_files(tmp_path: Path) -> None:
    table = catalog(tmp_path).create_table(
        "db.a", Schema(pa.schema([pa.field("a", pa.int64())]), options={"bucket": "-1"})
    )
    for _ in range(6):
        table.write(pa.table({"a": [1]}))
    (bucket,) = table.health()
    assert (bucket.sorted_runs, bucket.small_files, bucket.files) == (0, 6, 6)
    assert bucket.reasons == ("6 small files >= 5",)
    assert bucket.ro_lag_ms == 0 and bucket.read_amplification == 6.0
    assert (bucket.decision, bucket.facts["bins"]) == ("small-files", 1)
    assert bucket.cost_minor == bucket.cost_full == bucket.total_bytes
    table.compact()
    assert [(h.cost_minor, h.cost_full, h.decision) for h in table.health()] == [(0, 0, "")]


def test_many_tiny_files_of_an_append_table_are_parts_of_its_score() -> None:
    signs = ScoreFigures(0, 0, 1.0, 0.0, small_files=500, bytes=500 * 1_331, has_primary_key=False, files=500)
    parts = {part.name: part for part in score_parts(signs, TableOptions({"bucket": "-1"}))}
    assert parts["small-file backlog"].share == 0.5
    assert parts["small-file backlog"].text == "500 small files in one bucket (limit 1,000)"
    assert parts["average file size"].text == "500 files of 1.3 KiB on average (a tenth of target-file-size: 26 MiB)"
    few = ScoreFigures(0, 0, 1.0, 0.0, small_files=50, bytes=50 * 1_331, has_primary_key=False, files=50)
    assert "average file size" not in {part.name for part in score_parts(few, TableOptions({"bucket": "-1"}))}


def test_an_empty_table_has_no_buckets(tmp_path: Path) -> None:
    assert keyed(tmp_path).health() == []


def test_scores_rise_with_runs_and_stay_in_range() -> None:
    options = TableOptions({}, "db.t")

    def of(runs: int, space: float = 1.0, deletes: float = 0.0) -> float:
        return score(ScoreFigures(runs, runs, space, deletes, 0, 1 << 30, has_primary_key=True), options)[0]

    scores = [of(runs) for runs in range(1, 12)]
    assert scores == sorted(scores) and scores[0] == 0.1 and scores[4] == 100.0 == scores[-1]
    assert of(2, space=3.0) == 100.0 and 0 < of(2, deletes=0.05) <= 100.0


def test_a_score_says_what_it_is_made_of_and_tiny_tables_cannot_look_ill(tmp_path: Path) -> None:
    options = TableOptions({}, "db.t")
    signs = ScoreFigures(9, 9, 3.0, 0.1, 0, 1 << 30, has_primary_key=True, hidden=3, files=9, waiting_ms=10 * 24 * HOUR)
    parts = {part.name: (part.points(1.0), part.weight) for part in score_parts(signs, options)}
    assert parts == {
        "read amplification": (100, 100), "space amplification": (100, 100), "deletes": (45, 90), "hidden rows": (50, 50),
        "level-0 backlog": (0.9, 100), "staleness": (20, 40),
    }  # fmt: skip
    assert score(signs, options) == (
        100.0,
        (
            "9 sorted runs >= 5",
            "space amplification 3.00 (limit 3.00)",
            "3 rows are not visible before they are compacted",
            "10.0% of the rows are deletes",
            "not compacted for 10 days",
        ),
    )
    tiny = replace(signs, bytes=9_000, hidden=0)
    assert score(tiny, options)[0] == pytest.approx(100 * (9 * 4 + 0.01) / 128, abs=0.1)
    assert score(replace(tiny, level0=1_000), options)[0] == 100.0  # so many files are a backlog whatever their size
    table = keyed(tmp_path)
    for i in range(5):
        table.write(rows(range(10), v=i))
    (bucket,) = table.health()
    assert bucket.score < 20 and "5 sorted runs >= 5" in bucket.reasons and bucket.cost_minor > 0


def test_a_table_of_many_tiny_buckets_is_weighed_as_a_whole_and_its_history_counts() -> None:
    part = Part("read amplification", 1.0, 100, "5 sorted runs >= 5")
    tiny = [bucket_health("", n, parts=(part,), size_share=0.15, score=15.0, reasons=(part.text,)) for n in range(20)]
    assert need_of("a.b", tiny[:1]).score == 15.0
    need = need_of("a.b", tiny)
    assert (need.score, need.parts) == (100.0, (("read amplification", 100.0, 100),))
    owed = history_parts(HistoryHealth(overdue=50, held=500, consumer="job", manifests=9), TableOptions({}, "db.t"))
    need = need_of("a.b", tiny[:1], owed)
    assert need.score == 50.0
    assert need.parts == (("held snapshots", 50.0, 50), ("snapshot debt", 25.0, 50), ("read amplification", 15.0, 100))
    assert need.costs_most == (
        "consumer job holds 500 snapshots; 50 snapshots should have expired; bucket-0: 5 sorted runs >= 5"
    )


def test_what_costs_most_is_named_first_even_below_half_of_its_limit() -> None:
    calm = bucket_health("", 0)
    held = history_parts(HistoryHealth(held=30, consumer="job"), TableOptions({}, "db.t"))
    need = need_of("a.b", [calm], held)
    assert (need.score, need.costs_most) == (15.0, "consumer job holds 30 snapshots")
    waiting = need_of("a.b", [], waiting={"dt=1": 4, "dt=2": 3_000})
    assert (waiting.score, waiting.costs_most) == (50.0, "3,004 postponed rows without a bucket: no reader sees them")
    both = need_of("a.b", [calm], held, {"": 7})
    assert both.costs_most == "7 postponed rows without a bucket: no reader sees them"
    signs = ScoreFigures(2, 1, 1.0, 0.0, 0, 1 << 30, has_primary_key=True, files=2, ro_lag_ms=30 * HOUR)
    parts = {part.name: part for part in score_parts(signs, TableOptions({}, "db.t"))}
    assert parts["read-optimised lag"].points(1.0) == 30
    assert parts["read-optimised lag"].text == "the read-optimised view lags 30 h (limit 24 h)"
    assert parts["read-optimised lag"].points(1.0) > parts["read amplification"].points(1.0)


def test_forecasts_are_calibrated_by_the_median_of_the_tables_own_runs() -> None:
    def run(
        predicted: float | None,
        seconds: float,
        action: str = "compact",
        outcome: str = "done",
        size: int = 10,
        **kept: int,
    ) -> LedgerEntry:
        report = {"bytes_in": size, "bytes_out": size // 2, **kept}
        return LedgerEntry("r", action, "t", 1, outcome, seconds=seconds, predicted_seconds=predicted, report=report)

    assert calibrate([]) == Calibration(0, 1.0, 1.0)
    records = [run(1.0, 2.0), run(1.0, 3.0), run(1.0, 40.0), run(0.0, 1.0), run(None, 1.0), run(1.0, 9.0, "orphans")]
    found = calibrate([*records, run(1.0, 9.0, outcome="failed"), run(1.0, 9.0, size=0)])
    assert found == Calibration(3, 3.0, 0.5)
    assert found.predicted_seconds(1.5) == 4.5
    assert found.text() == "3 runs took 3.00 times the forecast for one core, and left 50% of the bytes"
    assert calibrate([run(1.0, 2.0, bytes_kept=90)]).bytes_out == 0.95, "kept files are part of a plan's bytes"


def _marked(tmp_path: Path, buckets: int = 0) -> Table:
    """Two files of a table without a key, 1,000 rows each."""
    fixed = {"bucket": str(buckets), "bucket-key": "k"} if buckets else {}
    schema = pa.schema([("k", pa.int64()), ("v", pa.int64())])
    options = {"deletion-vectors.enabled": "true", "source.split.target-size": "1 kb", **fixed}
    table = catalog(tmp_path).create_table("db.log", Schema(schema, [], [], options))
    for first in (0, 1000):
        table.write(pa.table([range(first, first + 1000), range(1000)], schema=schema))
    return table


def test_rows_that_vectors_mark_show_and_ask_for_a_compaction_from_the_threshold_on(tmp_path: Path) -> None:
    table = _marked(tmp_path)
    (bucket,) = table.health()
    assert (bucket.deleted_rows, bucket.delete_ratio, bucket.cost_minor) == (0, 0.0, 0)
    calm = bucket.score
    table.delete([("k", "<", 90)])
    (bucket,) = table.health()
    assert (bucket.deleted_rows, bucket.delete_ratio) == (90, 0.045)
    assert (bucket.cost_minor, bucket.score) == (0, max(calm, 45.0))
    table.delete([("k", "<", 150)])
    (bucket,) = table.health()
    assert bucket.score == 75.0
    assert "15.0% of a file's rows are deleted (threshold 20.0%)" in bucket.reasons
    table.delete([("k", "<", 201)])
    (bucket,) = table.health()
    assert (bucket.deleted_rows, bucket.score, bucket.facts["deleted_rows"]) == (201, 100.0, 201)
    plan = table.plan_maintenance("compact")
    assert bucket.cost_minor == sum(item.bytes_in for item in plan.items) > 0
    assert bucket.cost_full >= bucket.cost_minor
    table.apply(plan)
    (bucket,) = table.health()
    assert (bucket.deleted_rows, bucket.rows, bucket.cost_minor) == (0, 1799, 0)
    # the table's own threshold counts
    table.delete([("k", "=", 500)])
    (bucket,) = table.copy({"compaction.delete-ratio-threshold": "0.0005"}).health()
    assert bucket.score == 100.0
    assert bucket.cost_minor > 0


def test_a_lone_file_is_due_too_and_buckets_wait_for_a_full_compaction(tmp_path: Path) -> None:
    table = _marked(tmp_path / "a")
    table.compact(full=True)
    table.delete([("k", "<", 1000)])
    (bucket,) = table.health()
    assert (bucket.files, bucket.deleted_rows, bucket.score) == (1, 1000, 100.0)
    assert bucket.cost_minor == bucket.total_bytes
    table = _marked(tmp_path / "b", buckets=1)
    table.delete([("k", "<", 500)])
    (bucket,) = table.health()
    assert (bucket.deleted_rows, bucket.score, bucket.cost_minor) == (500, 90.0, 0)
    assert bucket.cost_full == bucket.total_bytes
    assert not table.plan_maintenance("compact").items


def test_marked_rows_of_a_primary_key_table_count_among_the_deleted(tmp_path: Path) -> None:
    table = keyed(tmp_path, **{"deletion-vectors.enabled": "true"})
    table.write(rows(range(3000)))
    table.compact(full=True)
    table.write(rows(range(300), v=1))
    table.compact()
    (bucket,) = table.health()
    assert (bucket.rows, bucket.deletes, bucket.deleted_rows) == (3300, 0, 300)
    assert bucket.delete_ratio == pytest.approx(300 / 3300, abs=1e-4)
