"""Every check holds over healthy tables of each kind, and fails, naming what is broken, when its promise is broken on disk."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from lsm_core import Catalog, Schema, Table
from lsm_core.clock import FixedClock
from lsm_core.commit import Committer
from lsm_core.errors import InvalidOption
from lsm_core.format.manifest import ENTRY_SCHEMA
from lsm_core.format.snapshot import CommitKind
from lsm_core.maintenance import BucketHealth, CheckLimits, CheckReport, check_table, run_check
from lsm_core.maintenance.checks import metadata_validity
from lsm_core.maintenance.checks.layout_condition import JUDGES, Condition, ConditionVerdict
from lsm_core.metadata import manifests, snapshots
from lsm_core.metadata.store import TableStore
from tests.cli.shell import Shell
from tests.maintenance.tables import HOUR, NOW, catalog, compact_wrongly, content, keyed, rows
from tests.support.platform import bucket_health

KINDS: dict[str, dict[str, str]] = {
    "deduplicate": {"sequence__field": "v"},
    "first-row": {"merge_engine": "first-row", "changelog_producer": "lookup"},
    "partial-update": {"merge_engine": "partial-update"},
    "aggregation": {
        "merge_engine": "aggregation",
        "fields__v__aggregate_function": "sum",
        "changelog_producer": "lookup",
    },
    "input": {"changelog_producer": "input"},
    "full-compaction": {"changelog_producer": "full-compaction"},
    "vectors": {"deletion_vectors__enabled": "true", "changelog_producer": "lookup"},
    "dynamic": {"bucket": "-1"},
}
ENGINES = ("deduplicate", "first-row", "partial-update", "aggregation")


def lived(tmp_path: Path, kind: str, **options: str) -> Table:
    """Seven commits, two compactions between them, and level-0 files at the end."""
    given = {"bucket": "2", "write_only": "true", **KINDS[kind], **options}
    table = keyed(tmp_path, **given)
    for step in range(7):
        table.write(rows(range(step * 10, step * 10 + 30), v=1000 * step))
        if step in {2, 4}:
            table.compact(full=step == 4)
    return table


def publish(table: Table, change: Callable[[pa.Table], pa.Table], **members: Any) -> None:
    """Publish a COMPACT snapshot whose live files are those of the newest one after ``change``; nobody checks it."""
    store, latest = table.store, snapshots.latest(table.store)
    assert latest is not None
    changed = change(manifests.live_entries(store, latest)).select(ENTRY_SCHEMA.names).cast(ENTRY_SCHEMA)
    base, size = manifests.write_list(store, manifests.write_manifests(store, changed))
    delta, delta_size = manifests.write_list(store, [])
    made = replace(
        latest,
        id=latest.id + 1,
        commit_kind=CommitKind.COMPACT,
        base_manifest_list=base,
        base_manifest_list_size=size,
        delta_manifest_list=delta,
        delta_manifest_list_size=delta_size,
        changelog_manifest_list=None,
        changelog_manifest_list_size=None,
        **members,
    )
    Path(store.snapshot_path(made.id)).write_bytes(made.to_json())
    snapshots.write_latest_hint(store, made.id)


def with_column(entries: pa.Table, name: str, values: list[Any]) -> pa.Table:
    at = entries.schema.get_field_index(name)
    return entries.set_column(at, entries.schema.field(name), pa.array(values, entries.schema.field(name).type))


def found(table: Table, check: str, limits: CheckLimits | None = None) -> CheckReport:
    return run_check(table.store, check, limits)


LONG = ("input", "full-compaction", "partial-update", "first-row")


@pytest.mark.parametrize("kind", [pytest.param(k, marks=pytest.mark.soak) if k in LONG else k for k in KINDS])
def test_a_healthy_table_of_each_kind_passes_all_checks_that_it_has(tmp_path: Path, kind: str) -> None:
    reports = check_table(lived(tmp_path, kind).store)
    assert [report for report in reports if not report.passed] == []
    names = {report.check for report in reports}
    assert ("changelog_replays" in names) == (KINDS[kind].get("changelog_producer") is not None)
    assert ("deletion_vectors_valid" in names) == (kind == "vectors")
    assert {"tree_is_valid", "unique_keys", "merge_engine_rules", "snapshot_chain"} <= names
    values = {report.check: report.numbers for report in reports}
    assert values["merge_engine_rules"]["keys compared"] == 90
    assert (values["merge_engine_rules"]["buckets read"], values["merge_engine_rules"]["buckets"]) in {(2, 2), (1, 1)}
    if "changelog_replays" in values:
        assert values["changelog_replays"]["changes applied"] > 0


def test_an_append_table_has_the_checks_that_need_no_key(tmp_path: Path) -> None:
    from lsm_core import Schema

    schema = Schema(pa.schema([("a", pa.int64())]), options={"bucket": "-1"})
    table = catalog(tmp_path).create_table("db.log", schema)
    assert all(report.text == "nothing was committed yet" for report in table.check())
    table.write(pa.table({"a": [1]}))
    assert [(report.check, report.passed) for report in table.check()] == [
        ("tree_is_valid", True),
        ("small_files_backlog", True),
        ("bucket_size", True),
        ("average_file_size", True),
        ("snapshot_chain", True),
        ("pages_readable", True),
    ]
    with pytest.raises(InvalidOption, match="unique_keys"):
        table.check(["unique_keys"])


def test_files_of_a_level_that_overlap_break_the_tree(tmp_path: Path) -> None:
    table = lived(tmp_path, "deduplicate")
    publish(table, lambda entries: with_column(entries, "level", [5] * entries.num_rows))
    report = found(table, "tree_is_valid")
    assert report.outcome == "failed"
    assert "of level 5 overlap in key range" in report.text


@pytest.mark.parametrize("together", [1, 5, 4_096])
def test_overlaps_are_reported_for_their_bucket_however_many_buckets_are_decoded_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, together: int
) -> None:
    monkeypatch.setattr(metadata_validity, "_FILES_TOGETHER", together)
    table = keyed(tmp_path, bucket="4", write_only="true")
    for step in range(3):
        table.write(rows(range(step * 10, step * 10 + 40)))

    def move(entries: pa.Table) -> pa.Table:
        levels = [5 if bucket == 2 else 0 for bucket in entries.column("bucket").to_pylist()]
        return with_column(entries, "level", levels)

    publish(table, move)
    report = found(table, "tree_is_valid")
    assert (report.numbers["buckets"], report.numbers["files"]) == (4, 12)
    assert len(report.problems) == 2
    assert all(text.startswith("bucket-2: ") and "overlap in key range" in text for text in report.problems)


@pytest.mark.parametrize("kind", ENGINES)
def test_a_compaction_that_changed_a_value_breaks_the_rules_of_each_engine(tmp_path: Path, kind: str) -> None:
    options = {name: value for name, value in KINDS[kind].items() if name != "changelog_producer"}
    table = keyed(tmp_path, bucket="1", write_only="true", **options)
    for step in range(4):
        table.write(rows(range(step, step + 20), v=1000 * step))
    compact_wrongly(table, key=3, value=7_777)
    report = found(table, "merge_engine_rules")
    assert report.outcome == "failed"
    assert report.problems == ("bucket-0: key 3 has another version or value",)
    assert f"{kind} says otherwise than the table" in report.text
    assert found(table, "tree_is_valid").passed  # nothing but the rows tells


def test_a_key_in_the_wrong_bucket_is_found_and_so_is_one_that_is_there_twice(tmp_path: Path) -> None:
    for kind, named in (("deduplicate", "and belongs into bucket"), ("dynamic", "is there 2 times (buckets 0, 1)")):
        table = lived(tmp_path / kind, kind)
        store = table.store
        table.compact(full=True)

        def doubled(entries: pa.Table, store: TableStore = store) -> pa.Table:
            first = entries.slice(0, 1)
            bucket = 1 - first.column("bucket")[0].as_py()
            partition, name = first.column("partition")[0].as_py(), first.column("file_name")[0].as_py()
            source = store.data_path(partition, 1 - bucket, name)
            Path(store.bucket_dir(partition, bucket)).mkdir(exist_ok=True)
            shutil.copy(source, store.data_path(partition, bucket, f"copy-{name}"))
            other = with_column(with_column(first, "bucket", [bucket]), "file_name", [f"copy-{name}"])
            kept = entries.filter(pc.equal(entries.column("bucket"), 1 - bucket))  # of the other bucket nothing is left
            return pa.concat_tables([kept, other])

        publish(table, doubled)
        report = found(table, "unique_keys")
        assert report.outcome == "failed"
        assert any(named in line for line in report.problems), report.problems


def test_two_writers_at_once_give_versions_that_chance_decides_between(tmp_path: Path) -> None:
    table = keyed(tmp_path, bucket="1", write_only="true")
    table.write(rows(range(10)))
    messages = []
    for v in (100, 200):
        with table.new_write() as writer:
            writer.write(rows(range(5), v=v))
            messages.append(writer.prepare_commit())
    for message in messages:
        Committer(table.store).commit(message)
    report = found(table, "equal_sequence_numbers")
    assert report.outcome == "warning"
    assert len(report.problems) == 5
    assert "key 0 twice with sequence number 10, in " in report.text
    ordered = keyed(tmp_path / "ordered", bucket="1", write_only="true", sequence__field="v")
    messages = []
    for v in (100, 200):
        with ordered.new_write() as writer:
            writer.write(rows(range(5), v=v))
            messages.append(writer.prepare_commit())
    for message in messages:
        Committer(ordered.store).commit(message)
    assert found(ordered, "equal_sequence_numbers").passed  # the sequence field tells them apart


@pytest.mark.parametrize(
    "kind", ["aggregation", *(pytest.param(kind, marks=pytest.mark.soak) for kind in ("input", "full-compaction"))]
)
def test_a_changelog_that_lost_a_snapshots_changes_does_not_replay(tmp_path: Path, kind: str) -> None:
    table = lived(tmp_path, kind)
    store = table.store
    changes = [
        snapshot for snapshot in snapshots.iterate(store) if snapshot.changelog_manifest_list and snapshot.id > 1
    ]
    silent = replace(changes[-1], changelog_manifest_list=None, changelog_manifest_list_size=None)
    Path(store.snapshot_path(silent.id)).write_bytes(silent.to_json())
    report = found(table, "changelog_replays")
    assert report.outcome == "failed"
    assert "keys differ from the replayed changelog of snapshot 1 to" in report.text
    assert any(
        "is in the table, but not in the changelog" in line or "another value" in line for line in report.problems
    )


def marked(tmp_path: Path) -> Table:
    """A table whose newest snapshot has deletion vectors."""
    table = keyed(tmp_path, bucket="1", write_only="true", deletion_vectors__enabled="true")
    for step in range(3):
        table.write(rows(range(step * 5, step * 5 + 20), v=1000 * step))
        table.compact(full=step == 0)
    assert found(table, "deletion_vectors_valid").numbers["rows marked"]
    return table


def test_vectors_that_lie_are_found(tmp_path: Path) -> None:
    def changed(table: Table, change: Callable[[Any], Any]) -> CheckReport:
        store, latest = table.store, snapshots.latest(table.store)
        assert latest is not None
        entries = [change(entry) for entry in manifests.index_entries(store, latest)]
        name = manifests.write_index_manifest(store, None, [], entries)
        publish(table, lambda live: live, index_manifest=name)
        return found(table, "deletion_vectors_valid")

    table = marked(tmp_path / "counted")
    assert found(table, "deletion_vectors_valid").passed
    report = changed(
        table,
        lambda entry: replace(
            entry, deletion_vectors=tuple(replace(vector, cardinality=99) for vector in entry.deletion_vectors)
        ),
    )
    assert report.outcome == "failed"
    assert "the index manifest records 99" in report.text
    report = changed(marked(tmp_path / "moved"), lambda entry: replace(entry, bucket=1))
    assert report.outcome == "failed"
    assert "the index manifest lists it for bucket 1" in report.text

    table = marked(tmp_path / "short")
    publish(
        table, lambda live: with_column(live, "row_count", [1] * live.num_rows)
    )  # the file has fewer rows than are marked
    assert "of a file of 1 rows" in found(table, "deletion_vectors_valid").text

    table = marked(tmp_path / "damaged")
    (index,) = Path(table.store.root).glob("index/*")
    data = bytearray(index.read_bytes())
    data[len(data) // 2] ^= 0xFF
    index.write_bytes(bytes(data))
    assert found(table, "deletion_vectors_valid").outcome == "failed"


def test_what_snapshots_name_and_is_not_there_breaks_the_chain(tmp_path: Path) -> None:
    table = lived(tmp_path, "input")
    table.create_tag("kept", 3)
    store, latest = table.store, snapshots.latest(table.store)
    assert latest is not None
    healthy = found(table, "snapshot_chain")
    assert (healthy.passed, healthy.numbers["snapshots"], healthy.numbers["tags"]) == (True, latest.id, 1)
    entry = manifests.delta_entries(store, snapshots.read(store, 2)).slice(0, 1).to_pylist()[0]
    data = Path(store.data_path(entry["partition"], entry["bucket"], entry["file_name"]))
    changes = manifests.changelog_entries(store, snapshots.read(store, 1)).slice(0, 1).to_pylist()[0]
    changelog = Path(store.data_path(changes["partition"], changes["bucket"], changes["file_name"]))
    manifest = Path(store.manifest_path(manifests.delta_list(store, latest)[0].file_name))
    for path, text in (
        (data, f"snapshot 2: data file {data.name} of bucket {entry['bucket']} is gone"),
        (changelog, f"snapshot 1: changelog file {changelog.name}"),
        (manifest, f"corrupt file {manifest}: the file is missing"),
        (Path(store.snapshot_path(4)), "snapshot 4 is missing"),
    ):
        kept = path.read_bytes()
        path.unlink()
        report = found(table, "snapshot_chain")
        assert report.outcome == "failed"
        assert any(text in line for line in report.problems), (text, report.problems)
        path.write_bytes(kept)
    assert found(table, "snapshot_chain").passed


def later(table: Table, hours: int) -> Table:
    store = table.store
    return Table(TableStore.open(store.file_io, store.root, store.name, FixedClock(NOW + hours * HOUR)))


def test_the_condition_of_files_is_judged_by_limits(tmp_path: Path) -> None:
    table = lived(tmp_path, "deduplicate")
    backlog = found(table, "level0_backlog", CheckLimits(level0_warn=2, level0_critical=5))
    assert (backlog.outcome, backlog.text) == ("warning", "2 level-0 files >= 2 in bucket-0")
    assert found(table, "level0_backlog", CheckLimits(level0_warn=1, level0_critical=2)).outcome == "failed"
    assert "`dredge rescale`" in found(table, "bucket_size", CheckLimits(bucket_bytes=100)).text
    many = found(table, "average_file_size", CheckLimits(small_files=2))
    assert many.passed  # runs below the trigger are the design
    for step in range(20):
        table.write(rows(range(step, step + 30), v=9000 + step))
    many = found(table, "average_file_size", CheckLimits(small_files=2))
    assert many.outcome == "warning"
    assert "the table consists of 46 files of" in many.text
    lag = found(later(table, 30), "ro_is_fresh")
    assert lag.outcome == "warning"
    assert "$ro lags 30.0 h > 24.0 h" in lag.text
    assert found(later(table, 20), "ro_is_fresh").passed


def judged(check: str, *buckets: BucketHealth, keyed: bool = False) -> ConditionVerdict:
    condition = Condition(buckets, NOW, keyed=keyed, file_bytes=256 << 20, trigger=5)
    return JUDGES[check](condition, CheckLimits())


def in_files(partition: str, files: int, average: int, bucket: int = 0) -> BucketHealth:
    """A bucket of an append table in so many files of that size."""
    shape = {
        "files": files,
        "small_files": 0 if average >= 128 << 20 else files,
        "bytes_per_level": {0: files * average},
    }
    return bucket_health(partition, bucket, level0_files=files, sorted_runs=0, **shape)


def test_small_files_of_an_append_table_are_counted_by_partition_and_bucket() -> None:
    well = judged("small_files_backlog", in_files("dt=a", 999, 1_300), in_files("dt=b", 20_000, 200 << 20))
    assert (well.passed, well.text) == (True, "999 small files < 1,000 in dt=a")
    warned = judged("small_files_backlog", in_files("dt=a", 1_000, 1_300), in_files("dt=a", 5, 1_300, bucket=1))
    assert (warned.passed, warned.critical, warned.text) == (False, False, "1,005 small files >= 1,000 in dt=a")
    assert warned.problems == ["dt=a: 1,005 small files", "dt=a/bucket-0: 1,000 small files"]
    worst = judged("small_files_backlog", in_files("", 10_000, 1_300))
    assert (worst.critical, worst.text) == (True, "10,000 small files >= 10,000 in the table")


@pytest.mark.parametrize("keyed", [False, True])
def test_a_table_of_many_tiny_files_does_not_pass_however_few_each_partition_has(keyed: bool) -> None:
    spread = [in_files(f"dt={day}", 9, 1_331) for day in range(300)]
    result = judged("average_file_size", *spread, keyed=keyed)
    assert not result.passed
    assert result.text == (
        "2,700 files of 1.3 KiB on average, below 26 MiB, in 300 partitions, 300 buckets: `dredge compact --full` gathers them"
    )
    lone = judged("average_file_size", *(in_files(f"dt={day}", 1, 1_331) for day in range(1_001)), keyed=keyed)
    assert not lone.passed and "fewer partitions or buckets" in lone.text
    assert judged("average_file_size", *(in_files(f"dt={day}", 1, 1_331) for day in range(1_000)), keyed=keyed).passed
    assert judged("average_file_size", *(in_files(f"dt={day}", 9, 30 << 20) for day in range(300)), keyed=keyed).passed


def test_work_that_is_due_for_hours_while_nothing_runs_raises_the_alarm(tmp_path: Path) -> None:
    table = keyed(tmp_path, bucket="1", write_only="true")
    for step in range(4):
        table.write(rows([step]))
    assert found(later(table, 30), "maintenance_alive").text == "nothing is due"
    table.write(rows([9]))
    assert found(later(table, 5), "maintenance_alive").text == "work is due and runs go on"
    late = later(table, 30)
    report = found(late, "maintenance_alive")
    assert report.outcome == "failed"
    assert "bucket-0 is due (5 sorted runs) and nothing ran for 30.0 h > 6.0 h" in report.text
    paused = found(late, "maintenance_alive", CheckLimits(paused="storage move"))
    assert (paused.passed, paused.text) == (True, "1 buckets are due, maintenance is paused: storage move")
    late.compact(full=True)
    assert found(later(table, 31), "maintenance_alive").passed


def test_samples_are_bounded_say_so_and_are_the_same_for_the_same_snapshot(tmp_path: Path) -> None:
    table = keyed(tmp_path, bucket="4", write_only="true")
    for step in range(3):
        table.write(rows(range(step, step + 400), v=1000 * step))
    limits = CheckLimits(rows=500, keys=20)
    for check in ("unique_keys", "merge_engine_rules", "equal_sequence_numbers"):
        first, other = found(table, check, limits), found(table, check, limits)
        assert first == other
        assert first.passed
        assert (first.numbers["buckets read"], first.numbers["buckets"], first.numbers["rows"]) == (1, 4, 1200)


def test_the_command_prints_the_same_and_fails_with_the_check(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = lived(tmp_path, "vectors")
    dredge = Shell(tmp_path / "wh", capsys)
    answer = dredge("check", "db.t", "--json")
    assert answer.code == 0
    assert [item["check"] for item in answer.json] == [report.check for report in table.check()]
    publish(table, lambda entries: with_column(entries, "level", [5] * entries.num_rows))
    answer = dredge("check", "db.t", "--only", "tree_is_valid")
    assert answer.code == 1
    assert "overlap in key range" in answer.out
    assert "db.t: 1 of 1 checks failed: tree_is_valid" in answer.err
    answer = dredge("check", "db.t", "--only", "nothing")
    assert answer.code == 1
    assert "cannot be 'nothing'" in answer.err


def test_a_key_written_again_under_the_number_of_a_delete_that_is_gone_is_no_finding(tmp_path: Path) -> None:
    table = keyed(tmp_path, bucket="1", write_only="true")
    table.write(rows(range(4)))
    table.compact(full=True)  # the base of what is recomputed
    table.write(rows(range(4)), row_kinds="-D")
    table.compact(full=True)  # nothing is left: numbers begin again at 0
    table.write(rows([2], v=7))
    table.compact(full=True)
    assert [row[0] for row in content(table)] == [2]
    assert found(table, "merge_engine_rules").passed


@pytest.mark.parametrize("options", [{}, {"changelog_producer": "lookup"}, {"deletion_vectors__enabled": "true"}])
def test_retracts_of_nothing_and_kinds_that_a_compaction_replaced_are_no_finding(
    tmp_path: Path, options: dict[str, str]
) -> None:
    """A full compaction drops a retract that had nothing to retract, or makes a row of it; of a lone +U it makes +I."""
    sums = {"merge-engine": "aggregation", "fields.v.aggregate-function": "sum", "bucket": "1", "write-only": "true"}
    named = {key.replace("__", ".").replace("_", "-"): value for key, value in options.items()}
    catalog = Catalog(str(tmp_path))
    catalog.create_database("db")
    fields = pa.schema([pa.field("k", pa.int64(), nullable=False), ("v", pa.int64())])
    table = catalog.create_table("db.t", Schema(fields, primary_keys=["k"], options=sums | named))
    table.write(pa.table({"k": [0], "v": [0]}, schema=fields))  # the base of what is recomputed
    table.write(pa.table({"k": [1, 2], "v": [1, 2]}, schema=fields), row_kinds=pa.array(["-D", "+U"]))
    table.compact(full=True)
    table.write(pa.table({"k": [1], "v": [5]}, schema=fields))
    table.compact(full=True)
    assert {row["k"]: row["v"] for row in table.to_arrow().to_pylist()} == {0: 0, 1: 4 if options else 5, 2: 2}
    assert found(table, "merge_engine_rules").passed
