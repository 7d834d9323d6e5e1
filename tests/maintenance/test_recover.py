"""A recovery brings a large level 0 back by bounded passes; no pass changes an answer, and whoever stops half-way loses nothing."""

from __future__ import annotations

import json
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from lsm_core import Catalog, Schema, Table
from lsm_core.cli.app import run
from lsm_core.clock import FixedClock
from lsm_core.errors import InvalidOption
from lsm_core.format.manifest import ENTRY_SCHEMA, DataFileMeta
from lsm_core.maintenance import (
    CompactItem,
    Proof,
    RecoveryPass,
    VerifyReport,
    plan_recovery,
    proof_of,
    recover,
    verify_snapshots,
)
from lsm_core.metadata import manifests, snapshots
from lsm_core.metadata.live_files import bucket_groups, live_parts, tree_files
from lsm_core.metadata.store import TableStore
from lsm_core.read import merge_read
from lsm_core.tree import DataFile, Levels, check_levels, pick_oldest
from tests.maintenance.tables import HOUR, NOW, catalog, content, keyed, rows, strays
from tests.support.samples import one_in, sample

TRIGGER = {"num_sorted_run__compaction_trigger": "3", "write_only": "true"}
KINDS: dict[str, dict[str, str]] = {
    "deduplicate": {},
    "deduplicate by sequence.field": {"sequence.field": "v"},
    "first-row": {"merge-engine": "first-row"},
    "partial-update": {"merge-engine": "partial-update"},
    "partial-update by sequence.field": {"merge-engine": "partial-update", "sequence.field": "v"},
    "sums": {"merge-engine": "aggregation", "fields.v.aggregate-function": "sum"},
    "lookup": {"changelog-producer": "lookup"},
    "deletion vectors": {"deletion-vectors.enabled": "true", "deletion-vectors.merge-on-read": "true"},
}
RETRACTS = {"deduplicate", "deduplicate by sequence.field", "lookup", "deletion vectors"}
AT_ONCE = {"partial-update by sequence.field"}
BY_PART = {"deduplicate", "deduplicate by sequence.field", "partial-update", "sums"}
"""What merging first changes nothing of, and where no key is looked up in other files."""


def options(kind: str = "deduplicate", **more: str) -> dict[str, str]:
    return {"num-sorted-run.compaction-trigger": "3", "write-only": "true", **KINDS[kind], **more}


def written(tmp_path: Path, kind: str, seed: int, commits: int = 13) -> Table:
    """Commits of random keys into two buckets, some deletes among them; values fall as often as they rise."""
    chance = random.Random(seed)
    table = keyed(
        tmp_path, bucket="2", **{key.replace(".", "__").replace("-", "_"): v for key, v in options(kind).items()}
    )
    for _ in range(commits):
        keys = sorted(chance.sample(range(30), chance.randint(1, 12)))
        signs = ["-D" if kind in RETRACTS and chance.random() < 0.3 else "+I" for _ in keys]
        table.write(rows(keys, v=chance.randrange(100)), row_kinds=pa.array(signs))
    return table


def level0(table: Table) -> dict[int, int]:
    return {health.bucket: health.level0_files for health in table.health()}


def assert_proper(table: Table) -> None:
    snapshot = snapshots.latest(table.store)
    for _, _, _, entries in bucket_groups(manifests.live_entries(table.store, snapshot)):
        check_levels(tree_files(table.store, entries))


# -- no pass changes an answer -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", sample(KINDS, "deletion vectors".__eq__))
def test_every_pass_leaves_the_rows_and_the_end_is_that_of_a_full_compaction(tmp_path: Path, kind: str) -> None:
    table = written(tmp_path, kind, seed=len(kind))
    shutil.copytree(tmp_path / "wh", tmp_path / "full")
    before, start = content(table), snapshots.latest_id(table.store)
    report = table.recover(files=6)
    assert len(report.passes) > 1 and report.passes_left == 0
    assert len({done.snapshot_id for done in report.passes}) == len(report.passes)
    for number in range(start + 1, snapshots.latest_id(table.store) + 1):
        assert kind == "first-row" or content(table, number) == before, f"snapshot {number}"
    assert all(done.verification.level == "V2" for done in report.passes if done.rows_in)
    by_part, alone = 0, start
    for done in report.passes:
        proof = proof_of(table.store, done.snapshot_id)
        if done.passes_left:
            assert proof == Proof(done.snapshot_id - 1, replaced_only=True)
        else:  # all passes before it are compared once more, with it
            assert (proof.before, proof.passes) == (alone, done.snapshot_id - alone - 1)
            alone = done.snapshot_id
        found = verify_snapshots(table.store, proof.before, done.snapshot_id, replaced_only=proof.replaced_only)
        assert found.ok
        by_part += found.by_part
    assert (by_part > 0) == (kind in BY_PART)
    assert max(level0(table).values()) < 3 and not strays(table)
    assert_proper(table)
    full = Catalog(tmp_path / "full", clock=FixedClock(NOW)).table("db.t")
    full.compact(full=True)
    wanted = content(full)
    assert kind == "first-row" or wanted == before  # first-row: batch reads see what was compacted
    table.compact(full=True)
    assert content(table) == wanted
    assert sum(health.deletes for health in table.health()) == sum(health.deletes for health in full.health()) == 0


@pytest.mark.parametrize("kind", one_in(3, sorted(KINDS)))
def test_a_pass_takes_its_share_of_the_oldest_files_and_no_more(tmp_path: Path, kind: str) -> None:
    table = written(tmp_path, kind, seed=3)
    plan = table.plan_maintenance("recover", files=6)
    before = level0(table)
    items = plan.items_of(CompactItem)
    assert {item.bucket for item in items} == {0, 1} if kind not in AT_ONCE else len(items) == 1
    live = manifests.live_entries(table.store, snapshots.latest(table.store))
    for item in items:
        if kind in AT_ONCE:
            assert len(item.inputs) == before[item.bucket] and "all at once: sequence.field v" in item.reason
            continue
        mine = live.filter(pc.equal(live.column("bucket"), item.bucket)).to_pylist()
        oldest = sorted(mine, key=lambda entry: entry["max_sequence_number"])[:3]
        assert {file.name for file in item.inputs} == {entry["file_name"] for entry in oldest}
        assert item.trigger == "recovery" and "the oldest 3 to level" in item.reason
    report = table.apply(plan)
    assert isinstance(report, RecoveryPass)
    assert level0(table) == {b: n - sum(len(i.inputs) for i in items if i.bucket == b) for b, n in before.items()}
    assert report.level0_before - report.level0_after == sum(len(item.inputs) for item in items)
    again = table.apply(plan)
    assert again.applied_before is not None and again.applied_before.snapshot_id == report.snapshot_id


def test_deletes_stay_until_no_row_of_before_them_can_be_left(tmp_path: Path) -> None:
    for name, more, dropped in (("db.a", {}, True), ("db.b", {"sequence.field": "v"}, False)):
        given = {key.replace(".", "__").replace("-", "_"): v for key, v in options(**more).items()}
        table = keyed(tmp_path, name=name, **given)
        table.write(rows([1, 2], v=5))
        table.write(rows([1], v=50), row_kinds=pa.array(["-D"]))
        for number in range(6):
            table.write(rows([1 if number == 5 else 9], v=number))
        before = content(table)
        plan = table.plan_maintenance("recover", files=3)
        (item,) = plan.items_of(CompactItem)
        assert item.drop_delete is dropped
        table.apply(plan)
        assert content(table) == before
        table.recover(files=3)
        assert content(table) == before


# -- stopping and going on ---------------------------------------------------------------------------------------------


def test_stopping_between_passes_loses_nothing_and_asking_again_goes_on(tmp_path: Path) -> None:
    table = written(tmp_path, "deduplicate", seed=1)
    before, files = content(table), sum(level0(table).values())
    whole = []

    def stop(done: RecoveryPass) -> None:
        whole.append(done)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        recover(table.store, files=6, on_pass=stop)
    assert content(table) == before and not strays(table)
    assert sum(level0(table).values()) == whole[0].level0_after == files - 6
    first = table.recover(passes=1, files=6)
    assert (len(first.passes), first.level0_before, first.level0_after) == (1, files - 6, files - 12)
    assert first.passes_left > 0 and first.seconds_left > 0
    rest = table.recover(files=6)
    assert rest.passes_left == 0 and content(table) == before
    nothing = table.recover(files=6)
    assert not nothing.passes and "no bucket has level-0 files and 3 sorted runs" in nothing.lines()[0]
    runs = [entry for entry in table.ledger() if entry.action == "recover"]
    assert len(runs) == 2 + len(rest.passes) and {entry.outcome for entry in runs} == {"done"}


def test_a_recovery_of_one_partition_leaves_the_others_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fields = pa.schema([pa.field("dt", pa.string(), nullable=False), *rows([1]).schema])
    fields = fields.set(1, pa.field("k", fields.field("k").type, nullable=False))
    options = {"bucket": "1", "write-only": "true", "num-sorted-run.compaction-trigger": "3"}
    made = Catalog(tmp_path / "wh")
    made.create_database("db", ignore_if_exists=True)
    table = made.create_table("db.p", Schema(fields, ["dt", "k"], ["dt"], options))
    for number in range(7):
        both = pa.concat_tables([rows([1, number], v=number)] * 2)
        table.write(both.add_column(0, "dt", pa.array(["a,b"] * 2 + ["c"] * 2)).cast(fields))

    def left() -> dict[str, int]:
        return {health.partition["dt"]: health.level0_files for health in table.health()}

    shell = ["--warehouse", str(tmp_path / "wh"), "--partition", "dt=a,b", "--files", "3"]
    assert run(["recover", "db.p", *shell, "--dry-run"]) == 0
    assert "7 level-0 files wait: about 3 passes" in capsys.readouterr().out
    assert run(["recover", "db.p", *shell, "--passes", "1"]) == 0
    assert left() == {"a,b": 4, "c": 7}
    assert table.recover(files=3, partitions=[{"dt": "a,b"}]).passes_left == 0
    assert left()["a,b"] < 3 and left()["c"] == 7


def test_writers_and_compactions_may_come_between_plan_and_pass(tmp_path: Path) -> None:
    table = written(tmp_path, "deduplicate", seed=2)
    plan = table.plan_maintenance("recover", files=6)
    table.write(rows(range(40), v=7))
    before = content(table)
    assert table.apply(plan).changed and content(table) == before
    stale = table.plan_maintenance("recover", files=6)
    table.compact(full=True, buckets=[0])
    report = table.apply(stale)
    assert [item.bucket for item in report.stale] == [0] and report.snapshot_id is not None
    assert content(table) == before
    assert_proper(table)


def test_a_pass_does_not_slip_below_what_came_meanwhile(tmp_path: Path) -> None:
    table = keyed(tmp_path, **TRIGGER)
    for number in range(9):
        table.write(rows([number % 3], v=number))
    table.recover(passes=1, files=4)
    plan = table.plan_maintenance("recover", files=4)
    (item,) = plan.items_of(CompactItem)
    assert item.output_level > 0
    before = content(table)
    # another maintainer merges the newest files to a level that the pass would write to
    newest = plan_recovery(table.store, files=4)
    assert newest.hash == plan.hash
    table.apply(newest)
    report = table.apply(plan)
    assert not report.changed and report.applied_before is not None
    assert content(table) == before


def test_what_a_pass_replaced_and_its_outputs_are_compared_to_the_last_bit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = keyed(tmp_path, **TRIGGER)
    table.write(rows(range(4_000)))  # larger than what a pass merges: it stays below, and deletes above it must stay
    table.compact(full=True)
    for number in range(9):
        kinds = ["-D" if number == 2 and key == 3 else "+I" for key in range(6)]
        table.write(rows([0, 1, 2, 3 + 4 * (number > 2), 4 + 4 * (number > 2), 5], v=number), row_kinds=pa.array(kinds))
    (done,) = table.recover(passes=1, files=3).passes
    proof = proof_of(table.store, done.snapshot_id)
    assert proof.replaced_only

    def compared() -> VerifyReport:
        return verify_snapshots(table.store, proof.before, done.snapshot_id, replaced_only=True)

    assert compared().ok and compared().by_part == 1
    live = manifests.live_entries(table.store, snapshots.read(table.store, done.snapshot_id)).to_pylist()
    (output,) = (entry for entry in live if entry["level"] > 0 and entry["row_count"] == 6)
    path = table.store.data_path(output["partition"], 0, output["file_name"])
    whole = pq.read_table(path)
    assert whole.column("_VALUE_KIND").to_pylist() == [0, 0, 0, 3, 0, 0]

    def changed(name: str, row: int, value: int) -> pa.Table:
        values = whole.column(name).to_pylist()
        values[row] = value
        kind = whole.schema.field(name)
        return whole.set_column(whole.schema.names.index(name), kind, pa.array(values, kind.type))

    damages = {
        "a row that readers see": changed("v", 4, -1),
        "a row that a newer one hides": changed("v", 0, -1),  # nobody sees it: only the part tells
        "a sequence number": changed("_SEQUENCE_NUMBER", 0, 7),
        "a delete that became a row": changed("_VALUE_KIND", 3, 0),
        "a lost row": whole.slice(1),
        "a lost delete": pa.concat_tables([whole.slice(0, 3), whole.slice(4)]),
    }
    says, real = {output["file_name"]: whole}, merge_read.open_kv

    def opened(store: TableStore, partition: bytes, bucket: int, file: DataFileMeta, **how: Any) -> Any:
        for batch in real(store, partition, bucket, file, **how):
            rest = says.get(file.file_name)
            if rest is not None:
                (batch,) = rest.select(batch.schema.names).cast(batch.schema).combine_chunks().to_batches()
            yield batch

    monkeypatch.setattr(merge_read, "open_kv", opened)
    assert compared().ok
    for damage, rest in damages.items():
        says[output["file_name"]] = rest
        found = compared()
        assert (found.ok, found.by_part, len(found.differences)) == (False, 0, 1), damage


def test_the_last_pass_is_compared_with_what_was_there_before_the_first_and_what_came_meanwhile(tmp_path: Path) -> None:
    table = keyed(tmp_path, **TRIGGER)
    for number in range(10):
        table.write(rows([number % 4, 9], v=number))
    start = snapshots.latest_id(table.store)
    table.recover(passes=1, files=4)
    table.write(rows([2, 50], v=70))
    (again,) = table.recover(passes=1, files=4).passes
    assert proof_of(table.store, again.snapshot_id).replaced_only
    done = table.compact(full=True).snapshot_id
    proof = proof_of(table.store, done)
    assert proof == Proof(start, places=frozenset({(b"\0" * 12, 0)}), passes=2, appended=True), proof
    assert "over the 3 compactions of a recovery and the rows appended meanwhile" in proof.text()
    found = verify_snapshots(table.store, proof.before, done, places=proof.places, appended=True)
    assert found.ok and found.rows_a == found.rows_b == 6
    assert not verify_snapshots(table.store, proof.before, done, places=proof.places).ok
    assert proof_of(table.store, done) == proof
    # the next compaction has nothing to do with it, and of what came after an overwrite nothing is known
    table.write(rows([1]))
    assert proof_of(table.store, table.compact(full=True).snapshot_id).passes == 0
    for number in range(6):
        table.write(rows([number]))
    table.recover(passes=1, files=3)
    table.write(rows([7]), overwrite=True)
    table.write(rows([8]))
    assert proof_of(table.store, table.compact(full=True).snapshot_id).passes == 0


def test_a_pass_can_be_undone_as_a_compaction_can(tmp_path: Path) -> None:
    table = written(tmp_path, "deduplicate", seed=8)
    before, files = content(table), level0(table)
    (done,) = table.recover(passes=1, files=6).passes
    assert level0(table) != files
    table.undo(done.run_id)
    assert content(table) == before and level0(table) == files


@pytest.mark.parametrize(
    ("files", "each"),
    [(60, 12), pytest.param(10_000, 1_000, marks=(pytest.mark.soak, pytest.mark.timeout(3600)))],
    ids=["small", "ten-thousand"],
)
def test_whoever_is_interrupted_goes_on_with_the_same_command(tmp_path: Path, files: int, each: int) -> None:
    """The incident as a user has it: a verb, Ctrl-C half-way, the verb again."""
    table = keyed(tmp_path, **TRIGGER)
    messages = []
    with table.new_write() as writer:
        for number in range(files):
            writer.write(rows([number % 50, 50 + number], v=number))
            messages += writer.prepare_commit()
    table.new_commit().commit(messages)
    before = content(table)
    assert level0(table) == {0: files}
    command = ["recover", "db.t", "-w", str(tmp_path / "wh"), "--files", str(each)]
    # Tests that a script runs in the background ignore Ctrl-C, and so would their children.
    listening = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); from lsm_core.cli.app import main; main()"
    with subprocess.Popen(
        [sys.executable, "-c", listening, *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as victim:
        assert victim.stdout is not None and victim.stderr is not None
        for line in victim.stdout:
            if line.startswith("level 0:"):  # a pass was told: the next one is under way
                victim.send_signal(signal.SIGINT)
                break
        message = victim.stdout.read() + victim.stderr.read()
        assert victim.wait() == 130, message
    left = level0(table)[0]
    assert "the same command goes on" in message and 0 < left <= files - each and left % each == 0
    assert content(table) == before
    assert run(command) == 0
    assert level0(table)[0] < each and content(table) == before
    runs = [entry for entry in table.ledger() if entry.action == "recover"]
    assert (
        sum(entry.outcome == "done" for entry in runs) >= files // each - 1
    )  # one may have been stopped before it told
    clock = FixedClock(int(time.time() * 1000) + 72 * HOUR)
    later = Catalog(tmp_path / "wh", clock=clock).table("db.t")
    later.remove_orphan_files()
    clock.advance(48 * HOUR)
    later.sweep_trash()
    assert not strays(later) and content(later) == before


# -- what is read ------------------------------------------------------------------------------------------------------


def test_live_files_come_manifest_by_manifest_and_are_those_that_live(tmp_path: Path) -> None:
    table = written(tmp_path, "deduplicate", seed=4)
    table.recover(passes=2, files=6)
    table.write(rows([5], v=1))
    snapshot = snapshots.latest(table.store)
    whole = manifests.live_entries(table.store, snapshot)
    parts = list(live_parts(table.store, snapshot, columns=ENTRY_SCHEMA.names))
    assert len(parts) > 3
    assert sorted(pa.concat_tables([part for _, part in parts]).to_pylist(), key=str) == sorted(
        whole.to_pylist(), key=str
    )


def test_what_cannot_be_recovered_says_so(tmp_path: Path) -> None:
    table = keyed(tmp_path, **TRIGGER)
    assert table.recover().lines() == ["the table has no snapshot"]
    with pytest.raises(InvalidOption, match=r"files.*3 or more"):
        table.recover(files=2)
    with pytest.raises(InvalidOption, match=r"passes.*1 or more"):
        table.recover(passes=0)
    log = catalog(tmp_path).create_table("db.log", Schema(pa.schema([("v", pa.int64())]), options={"bucket": "-1"}))
    log.write(pa.table({"v": [1]}))
    assert log.recover().lines() == ["append tables have no level 0: compact merges their small files"]


def test_the_verb_tells_each_pass_and_what_is_left(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = written(tmp_path, "deduplicate", seed=6)
    place = ["-w", str(tmp_path / "wh"), "--files", "6"]
    assert run(["recover", "db.t", "--dry-run", *place]) == 0
    shown = capsys.readouterr().out
    assert "level-0 files wait: about" in shown and "the oldest 3 to level 3" in shown
    assert run(["recover", "db.t", "--passes", "1", *place]) == 0
    shown = capsys.readouterr().out
    assert "verified: V2" in shown and re.search(r"about 3 passes and \d+ s left", shown)
    assert run(["recover", "db.t", "--json", *place]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["passes_left"] == 0 and document["passes"][0]["verification"]["level"] == "V2"
    assert run(["recover", "db.t", *place]) == 0
    assert "no bucket has level-0 files" in capsys.readouterr().out
    assert run(["plan", "db.t", "--action", "recover", "-w", str(tmp_path / "wh")]) == 0
    assert max(level0(table).values()) < 3


# -- the rule, as values -----------------------------------------------------------------------------------------------


def of(level: int, size: int, number: int) -> DataFile:
    return DataFile(f"{level}-{number}", level, size, b"a", b"z", 1, number, number)


def test_runs_of_like_size_join_so_that_rows_are_rewritten_seldom() -> None:
    levels, rewritten = Levels((), 6), 0
    for number in range(256):
        levels = Levels((*levels.files, of(0, 10, number)), 6)
        unit = pick_oldest(levels, 1)
        assert not unit.full and unit.output_level > 0
        below = [file.level for file in levels.files if file not in unit.files]
        assert all(level > unit.output_level for level in below)
        rewritten += unit.size
        levels = levels.replaced(unit.files, [of(unit.output_level, unit.size, 1000 + number)])
        assert len(levels.runs()) == len({file.level for file in levels.files}) <= 5
    assert levels.total_size == 2560 and rewritten / levels.total_size < 9.5
