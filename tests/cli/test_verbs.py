"""The command line: every verb for people and for programs, and one clear line with a non-zero exit when it fails."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lsm_core import Catalog, Schema, __version__
from lsm_core.cli import app
from lsm_core.cli.app import run
from lsm_core.maintenance import hold_plan, plan_maintenance
from lsm_core.metadata import snapshots
from tests.cli.shell import Shell
from tests.maintenance.tables import HOUR, content, keyed, on_disk


def _table(shell: Shell) -> Any:
    return Catalog(shell.place).table("db.t")


def test_looking(shell: Shell) -> None:
    assert shell("tables", "--json").json == ["db.t"]
    assert shell("tables", "db").out == "db.t\n"
    status = shell("status", "db.t", "--json").json
    assert (status["snapshot"], status["runs"], status["rows"], status["cannot"]) == (6, 5, 103, [])
    assert "hard link" in shell("status").out
    health = shell("health", "db.t", "--json").json
    assert [(h["partition"], h["bucket"], h["sorted_runs"]) for h in health] == [
        ({"dt": "a"}, 0, 5),
        ({"dt": "b"}, 0, 1),
    ]
    only = shell("health", "db.t", "--partition", "dt=b", "--json").json
    assert [h["sorted_runs"] for h in only] == [1]
    text = shell("health", "db.t").out
    assert "5 sorted runs >= 5" in text
    columns = "by level|overlap max|overlap mean|delete ratio|oldest level 0|ro lag|minor|full"
    assert all(column in text for column in columns.split("|"))
    assert "amplification_percent" in text
    assert {"overlap_mean", "ro_lag_ms", "cost_minor", "cost_full", "facts", "decision"} <= set(health[0])
    assert [s["id"] for s in shell("snapshots", "db.t", "--json").json] == [1, 2, 3, 4, 5, 6]
    assert "APPEND" in shell("snapshots", "db.t").out
    files = shell("files", "db.t", "--json").json
    assert len(files) == 6 and {f["level"] for f in files} == {0}
    assert len(shell("files", "db.t", "--snapshot", "2", "--json").json) == 2
    assert files[0]["file_path"] in shell("files", "db.t").out
    assert [p["partition"] for p in shell("show", "db.t$partitions", "--json").json] == ["dt=a", "dt=b"]
    assert [list(p)[:2] for p in shell("partitions", "db.t", "--json").json] == [["partition", "record_count"]] * 2
    assert "the first 1 rows" in shell("partitions", "db.t", "--limit", "1").out
    assert shell("show", "sys.tables", "--columns", "table_name", "--json").json == [{"table_name": "t"}]
    assert "the first 1 rows" in shell("show", "db.t$files", "--limit", "1", "--snapshot", "3").out


def test_status_shows_the_neediest_first_and_what_costs_most(shell: Shell) -> None:
    Catalog(shell.place).create_table("db.a", Schema(pa.schema([("v", pa.int32())]))).write({"v": [1]})
    rows = {row["table"]: row for row in shell("status", "--json").json}
    assert (rows["db.t"]["rank"], rows["db.a"]["rank"]) == (1, 2)
    assert re.fullmatch(r"dt=a/bucket-0: space amplification .*; 5 sorted runs >= 5", rows["db.t"]["costs_most"])
    assert rows["db.a"]["costs_most"] == "healthy"
    assert (rows["db.t"]["level0"], rows["db.t"]["last_compaction"]) == (5, None)
    assert rows["db.t"]["full_bytes"] >= rows["db.t"]["due_bytes"] > 0
    text = shell("status").out
    assert text.index("db.t") < text.index("db.a") and "costs most" in text and "dt=a/bucket-0: space" in text
    assert (rows["db.t"]["state"], rows["db.a"]["state"]) == ("due", "healthy")
    assert rows["db.t"]["next_step"] == "`dredge compact db.t`"
    assert "db.t: due: 5 sorted runs (trigger 5); " in " ".join(text.split())


@pytest.mark.parametrize("damaged", ["snapshot", "manifest list", "lost manifest list"])
def test_status_says_that_the_history_is_damaged_although_the_newest_snapshot_is_whole(
    shell: Shell, damaged: str
) -> None:
    store = _table(shell).store
    second = snapshots.read(store, 2)
    file = Path(store.snapshot_path(2) if damaged == "snapshot" else store.manifest_path(second.delta_manifest_list))
    content = file.read_bytes()
    if damaged.startswith("lost"):
        file.unlink()
    else:
        file.write_text("{")
    (all_of_them,) = shell("status", "--json").json
    one = shell("status", "db.t", "--json").json
    # With all tables only snapshots are read, because the lists are in a folder with many files.
    assert all_of_them["state"] == ("corrupt" if damaged == "snapshot" else "due")
    assert one["state"] == "corrupt" and file.name in one["state_why"]
    assert "dredge repair db.t" in one["next_step"]
    file.write_bytes(content)
    assert shell("status", "db.t", "--json").json["state"] == "due"


def test_status_ranks_by_state_before_score(shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    catalog = Catalog(shell.place)
    for name in ("db.paused", "db.torn"):
        catalog.create_table(name, Schema(pa.schema([("v", pa.int32())]))).write({"v": [1]})
    Path(shell.place, "db.db", "torn", "schema", "schema-0").write_text("{")
    policies = tmp_path / "policies.yaml"
    policies.write_text("tables: {db.paused: {paused: storage move}}")
    monkeypatch.setenv("DREDGE_POLICIES", str(policies))
    rows = sorted(shell("status", "--json").json, key=lambda row: row["rank"])
    assert [(row["table"], row["state"]) for row in rows] == [
        ("db.torn", "corrupt"),
        ("db.paused", "paused"),
        ("db.t", "due"),
    ]
    assert rows[2]["next_step"] == "compact dt=a: the next tick"
    assert rows[1]["state_why"].endswith("paused by policy: storage move")
    monkeypatch.delenv("DREDGE_POLICIES")
    rows = sorted(shell("status", "--json").json, key=lambda row: row["rank"])
    assert [row["state"] for row in rows] == ["corrupt", "due", "healthy"], "without policies, by the tables' own rules"


def test_plan_then_apply_by_hash(shell: Shell) -> None:
    before = content(_table(shell))
    shown = shell("plan", "db.t")
    assert "5 sorted runs >= 5; size amplification: all to level 5" in shown.out
    assert "one sorted run: nothing to merge" in shown.out
    plan = shell("plan", "db.t", "--json").json
    assert shown.out.startswith(f"plan {plan['hash']}: compact db.t, base snapshot 6")
    report = shell("apply", "db.t", plan["hash"][:10], "--json").json
    assert (report["snapshot_id"], report["plan_hash"], report["runs_before"], report["runs_after"]) == (
        7,
        plan["hash"],
        5,
        1,
    )
    assert content(_table(shell)) == before
    again = shell("apply", "db.t", plan["hash"])
    assert again.code == 0 and "is already applied, snapshot 7" in again.out


def test_a_plan_that_waits_is_listed_and_applied_by_its_hash_without_the_tables_name(shell: Shell) -> None:
    store = _table(shell).store
    plan = plan_maintenance(store, "compact", full=True)
    hold_plan(store, plan, "approval: required")
    assert plan.hash in shell("plans", "db.t").out
    (listed,) = shell("plans", "db.*", "--json").json
    assert [item["hash"] for item in listed["waiting"]] == [plan.hash]
    unknown = shell("apply", "0" * 32)
    assert unknown.code == 1
    assert "keeps a plan with hash 0000" in unknown.err
    assert shell("apply", plan.hash, "--approved-by", "ann").code == 0
    assert shell("ledger", "db.t", "--json").json[-1]["approved_by"] == "ann"
    assert shell("plans", "db.t", "--json").json["waiting"] == []


def test_a_plan_may_travel_as_a_file(shell: Shell, tmp_path: Path) -> None:
    plan = shell("plan", "db.t", "--json", "--no-save")
    place = tmp_path / "plan.json"
    place.write_text(plan.out)
    assert shell("apply", "db.t", plan.json["hash"]).code == 1  # it was not kept
    assert shell("apply", "db.t", "--file", str(place), "--json").json["snapshot_id"] == 7


def test_sorting(shell: Shell) -> None:
    schema = pa.schema([("a", pa.int64()), ("b", pa.string())])
    table = Catalog(shell.place).create_table("db.h", Schema(schema, options={"bucket": "-1"}))
    for seed in range(2):
        table.write(pa.table({"a": [3, 1, seed], "b": ["x", "y", "z"]}))
    shown = shell("compact", "db.h", "--order-by", "a, b", "--strategy", "zorder", "--dry-run").out
    assert "zorder" in shown
    planned = shell("plan", "db.h", "--order-by", "a", "--json").json
    assert planned["arguments"]["order_by"] == '["a"]'
    done = shell("compact", "db.h", "--order-by", "a", "--json").json
    assert (done["files_in"], done["files_out"], done["rows_out"]) == (2, 1, 6)
    assert Catalog(shell.place).table("db.h").to_arrow().column("a").to_pylist() == [0, 1, 1, 1, 3, 3]
    refused = shell("compact", "db.h", "--order-by", "a", "--strategy", "spiral")
    assert refused.code == 1 and "order, zorder, hilbert" in refused.err


def test_compacting_at_once_and_dry(shell: Shell) -> None:
    before = on_disk(_table(shell))
    assert "would compact" in shell("compact", "db.t", "--dry-run").out
    assert "would compact" in shell("compact", "db.t", "--full", "--partition", "dt=b", "--dry-run").out
    assert on_disk(_table(shell)) == before
    done = shell("compact", "db.t")
    assert "runs 5 -> 1" in done.out and "verified: V2, 20 keys" in done.out
    full = shell("compact", "db.t", "--full", "--bucket", "0", "--partition", "dt=b", "--json").json
    assert full["files_upgraded"] == 1


def test_expiry_trash_restore_and_sweep(shell: Shell) -> None:
    shell("compact", "db.t")
    before = on_disk(_table(shell))
    dry = shell("expire", "db.t", "--retain-max", "1", "--dry-run")
    assert "would expire" in dry.out and on_disk(_table(shell)) == before
    report = shell("expire", "db.t", "--retain-max", "1", "--json").json
    assert report["expired"] == [1, 2, 3, 4, 5, 6]
    listed = shell("trash", "db.t", "--json").json
    assert [record["trash_id"] for record in listed] == [report["trash_id"]]
    assert "1..6" in shell("trash", "db.t").out
    assert "grace lasts" in shell("trash", "db.t", "--sweep").out
    assert "1 to 6 can be read again" in shell("restore", "db.t", report["trash_id"]).out
    assert len(shell("snapshots", "db.t", "--json").json) == 7
    shell("expire", "db.t", "--older-than", "1 min", "--retain-min", "1")
    shell.clock += 2 * HOUR
    assert shell("trash", "db.t", "--sweep", "--dry-run", "--json").json["files_deleted"] > 0
    assert shell("trash", "db.t", "--sweep", "--json").json["files_deleted"] > 0
    assert shell("trash", "db.t", "--json").json == []
    assert "no snapshot expired" in shell("expire", "db.t").out


def test_changelogs_that_outlive_snapshots(shell: Shell) -> None:
    longer = ("--set", "changelog.num-retained.min=20")
    assert "their changelogs stay" in shell("expire", "db.t", "--retain-max", "1", *longer).out
    assert shell("status", "db.t", "--json").json["changelogs"] == 5
    assert "the changelogs of the newest 20 snapshots stay" in shell("expire-changelogs", "db.t", *longer).out
    report = shell("expire-changelogs", "db.t", "--retain-max", "3", "--json").json
    assert (report["expired"], report["earliest"]) == ([1, 2, 3], 4)
    assert "changelogs 1..3" in shell("trash", "db.t").out
    assert "changelogs 1 to 3 can be read again" in shell("restore", "db.t", report["trash_id"]).out
    dry = shell("expire-changelogs", "db.t", "--delete-all", "--dry-run")
    assert "changelog of snapshot" in dry.out
    assert shell("expire-changelogs", "db.t", "--delete-all", "--json").json["earliest"] is None
    assert shell("status", "db.t", "--json").json["changelogs"] == 0


def test_plans_of_other_actions(shell: Shell) -> None:
    expiry = shell("plan", "db.t", "--action", "expire_snapshots", "--retain-max", "2", "--json").json
    assert [item["item"] for item in expiry["items"]][:4] == ["expire"] * 4
    assert "expired snapshots 1 to 4" in shell("apply", "db.t", expiry["hash"]).out
    shell.clock += 2 * HOUR
    trash = shell("plan", "db.t", "--action", "trash", "--json").json
    assert "would free" in shell("plan", "db.t", "--action", "trash").out
    assert "deleted" in shell("apply", "db.t", trash["hash"]).out


BAD_INPUT = {
    "unknown table": (["health", "db.nope"], 1, "table db.nope is not in"),
    "unknown database": (["health", "zz.t"], 1, "database zz is not in"),
    "no table name": (["health", "t"], 1, "'t' is not a table name"),
    "unknown option value": (["compact", "db.t", "--set", "num-levels=many"], 1, "num-levels"),
    "malformed setting": (["compact", "db.t", "--set", "num-levels"], 1, "KEY=VALUE"),
    "immutable option": (["compact", "db.t", "--set", "bucket=9"], 1, "bucket"),
    "malformed duration": (["expire", "db.t", "--older-than", "5 parsecs"], 1, "--older-than"),
    "malformed duration option": (
        ["expire", "db.t", "--set", "snapshot.time-retained=soon"],
        1,
        "snapshot.time-retained",
    ),
    "unknown partition column": (["compact", "db.t", "--partition", "day=1"], 1, "exactly the columns dt"),
    "unknown snapshot": (["files", "db.t", "--snapshot", "99"], 1, "no snapshot 99"),
    "unknown trash": (["restore", "db.t", "zz"], 1, "the trash is empty"),
    "hostile trash": (["restore", "db.t", "../../x"], 1, "cannot be '../../x'"),
    "unknown plan": (["apply", "db.t", "abcdef"], 1, "no saved plan with hash abcdef"),
    "no plan": (["apply", "db.t"], 1, "a plan's hash, or --file"),
    "missing plan file": (["apply", "db.t", "--file", "/no/such/plan"], 1, "/no/such/plan"),
    "impossible retention": (["expire", "db.t", "--retain-max", "0"], 1, "retain_max"),
    "unknown flag": (["compact", "db.t", "--frobnicate"], 2, "--frobnicate"),
    "unknown verb": (["frobnicate"], 2, "frobnicate"),
    "no number": (["files", "db.t", "--snapshot", "x"], 2, "--snapshot"),
    "unknown action": (["plan", "db.t", "--action", "dance"], 2, "dance"),
    "missing argument": (["health"], 2, "TABLE"),
}


@pytest.mark.parametrize("case", sorted(BAD_INPUT))
def test_bad_input_gives_one_clear_line(shell: Shell, case: str) -> None:
    (verb, *arguments), code, text = BAD_INPUT[case]
    before = on_disk(_table(shell))
    answer = shell(verb, *arguments)
    assert (answer.code, answer.out) == (code, "")
    assert answer.err.count("\n") == 1 and answer.err.startswith("dredge: ")
    assert text in answer.err
    assert on_disk(_table(shell)) == before


@pytest.mark.parametrize(
    "part", ["bucket-0/data-", "manifest/manifest-list-", "snapshot/snapshot-6", "schema/schema-0"]
)
@pytest.mark.parametrize("how", ["missing", "truncated"])
def test_damaged_files_are_named_in_one_line(shell: Shell, part: str, how: str) -> None:
    root = shell.place / "db.db" / "t"
    paths = sorted(path for path in root.rglob("*") if part in str(path))
    victim = max(paths, key=lambda path: path.stat().st_size)
    if how == "missing":
        victim.unlink()
    else:
        victim.write_bytes(victim.read_bytes()[:-9])
    answer = shell("compact", "db.t", "--full")
    if "snapshot-6" in part and how == "missing":
        assert answer.code == 0  # the fifth is then the newest there is
        return
    assert answer.code == 1
    assert answer.err.count("\n") == 1
    assert victim.name in answer.err or ("schema" in part and how == "missing")


def test_a_null_key_never_reaches_a_table(shell: Shell) -> None:
    from lsm_core.errors import InvalidData

    with pytest.raises(InvalidData, match="'k'"):
        _table(shell).write(pa.table({"k": [None], "v": [1], "s": ["x"], "dt": ["a"]}))


def test_the_warehouse_must_exist_and_be_given(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: Any
) -> None:
    assert run(["tables", "-w", str(tmp_path / "nope")]) == 1
    assert "there is no warehouse at" in capsys.readouterr().err
    monkeypatch.delenv("DREDGE_WAREHOUSE", raising=False)
    assert run(["tables"]) == 2
    assert "--warehouse" in capsys.readouterr().err
    keyed(tmp_path)
    monkeypatch.setenv("DREDGE_WAREHOUSE", str(tmp_path / "wh"))
    assert run(["tables"]) == 0
    assert capsys.readouterr().out == "db.t\n"


def test_names_with_brackets_are_printed_as_they_are(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = Catalog(tmp_path / "wh [1]")
    table.create_database("db")
    schema = pa.schema([pa.field("a", pa.int64()), pa.field("p", pa.string())])
    made = table.create_table("db.t", Schema(schema, [], ["p"], {"bucket": "-1"}))
    made.write(pa.table({"a": [1], "p": ["[bold]x[/bold]"]}))
    assert run(["health", "db.t", "-w", str(tmp_path / "wh [1]")]) == 0
    assert "p=%5Bbold%5Dx%5B%2Fbold%5D" in capsys.readouterr().out
    assert run(["status", "-w", str(tmp_path / "wh [1]")]) == 0
    assert "wh [1]" in capsys.readouterr().out


def test_help_lists_the_verbs_and_failures_do_not_trace(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([]) == 0
    shown = capsys.readouterr().out
    for verb in [
        "status",
        "tables",
        "health",
        "snapshots",
        "files",
        "show",
        "plan",
        "apply",
        "compact",
        "expire",
        "trash",
        "restore",
    ]:
        assert verb in shown
    assert run(["compact", "--help"]) == 0
    assert "--dry-run" in capsys.readouterr().out
    assert run(["--version"]) == 0
    assert capsys.readouterr().out == f"dredge {__version__}\n"


def test_the_command_starts_without_spark_or_dagster(tmp_path: Path) -> None:
    script = "import sys; import lsm_core.cli.app; print([m for m in ('pyspark', 'dagster') if m in sys.modules])"
    shown = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "[]"
    failed = subprocess.run(
        [sys.executable, "-m", "lsm_core.cli.app", "health", "db.t", "-w", str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert failed.returncode == 1
    assert failed.stderr.startswith("dredge: database db is not in") and failed.stderr.count("\n") == 1


def test_the_command_lists_its_verbs_without_arrow_and_looks_without_what_it_does_not_need(shell: Shell) -> None:
    def imported(*arguments: str) -> set[str]:
        script = (
            "import sys; from lsm_core.cli.app import main\n"
            "try: main()\n"
            "except SystemExit as end: assert not end.code, end.code\n"
            "print('\\n' + ' '.join(sys.modules))"
        )
        done = subprocess.run([sys.executable, "-c", script, *arguments], capture_output=True, text=True, check=True)
        return set(done.stdout.rpartition("\n\n")[2].split())

    listing = imported("--help")
    assert not listing & {"numpy", "pyarrow", "pandas", "pydantic", "rich", "lsm_core.table", "lsm_core.metadata"}
    looking = imported("status", "-w", str(shell.place))
    assert "pyarrow" in looking
    assert not looking & {
        "pandas",
        "pydantic",
        "pyroaring",
        "lsm_core.cli.verbs.maintain",
        "lsm_core.table.table",
        "lsm_core.compact",
        "lsm_core.write",
        "lsm_core.commit",
        "lsm_core.files",
    }


@pytest.mark.parametrize(
    ("arguments", "hidden"),
    [
        (["compact", "db.t", "--full"], True),
        (["compact", "db.t", "--runner", "spark"], False),
        (["verify", "db.t", "--runner=spark"], False),
        (["apply", "db.t", "abc", "--runner", "process"], True),
        (["sql", "SELECT 1"], False),
    ],
)
def test_the_command_has_pandas_where_it_starts_spark(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str], hidden: bool
) -> None:
    """Spark's sessions, jobs and Connect clients refuse to work without it."""
    found: list[object] = []
    monkeypatch.setattr(sys, "argv", ["dredge", *arguments])
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "1")
    monkeypatch.setattr("gc.set_threshold", found.append)
    monkeypatch.setattr(app, "run", found.append)
    with pytest.raises(SystemExit):
        app.main()
    assert found[1:] == [arguments]
    assert any(isinstance(finder, app._NoPandas) for finder in sys.meta_path) is hidden


def test_verbs_of_other_packages_are_found_and_loaded_only_when_called(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:

    class Entry:
        name = "hello"
        loaded = 0

        def load(self) -> Any:
            Entry.loaded += 1

            def hello(name: str, loud: bool = False) -> None:
                print(name.upper() if loud else name)

            return hello

    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: [Entry()] if group == "dredge.verbs" else [])
    assert run([]) == 0
    assert "hello" in capsys.readouterr().out and Entry.loaded == 0
    assert run(["hello", "world", "--loud"]) == 0
    assert capsys.readouterr().out == "WORLD\n" and Entry.loaded == 1
    assert run(["hello"]) == 2
    assert "Missing argument" in capsys.readouterr().err


def test_the_readme_names_verbs_as_they_are(shell: Shell) -> None:
    text = (Path(__file__).parents[2] / "README.md").read_text("utf-8")
    lines = [line.split("#")[0].split() for line in text.splitlines() if line.startswith("dredge ")]
    assert len(lines) >= 4
    plan = shell("plan", "db.t", "--full", "--json").json["hash"]
    logs = Schema(pa.schema([("a", pa.int64()), ("b", pa.string())]), options={"bucket": "-1"})
    Catalog(shell.place).create_table("db.logs", logs).write(pa.table({"a": [2, 1], "b": ["x", "y"]}))
    for _, verb, *arguments in lines:
        given = [{"shop.orders": "db.t", "HASH": plan, "id=100": "k=1,dt=a"}.get(a, a) for a in arguments]
        answer = shell(verb, *given)
        assert answer.code == 0, answer.err


@pytest.mark.parametrize("verb", ["status", "health", "compact", "plan", "trash"])
def test_a_system_table_is_refused_by_name(shell: Shell, verb: str) -> None:
    answer = shell(verb, "db.t$files")
    assert (answer.code, answer.err.count("\n")) == (1, 1)
    assert "system table $files" in answer.err


def test_a_blank_warehouse_and_a_senseless_clock_are_named(shell: Shell, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["status", "-w", " "]) == 1
    assert "'warehouse'" in capsys.readouterr().err
    assert run(["status", "-w", str(shell.place), "--clock", "noon"]) == 1
    assert capsys.readouterr().err.startswith("dredge: option '--clock' cannot be 'noon'; accepted: system")


def test_json_holds_no_number_that_json_lacks(shell: Shell) -> None:
    schema = Schema(pa.schema([("p", pa.float64()), ("a", pa.int32())]), partition_keys=["p"])
    table = Catalog(shell.place).create_table("db.u", schema)
    table.write({"p": pa.array([float("nan"), float("inf")]), "a": [1, 2]})
    text = shell("health", "db.u", "--json").out
    found = json.loads(text, parse_constant=pytest.fail)
    assert {row["partition"]["p"] for row in found} == {"NaN", "Infinity"}


def test_what_strangers_wrote_does_not_steer_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    catalog = Catalog(tmp_path)
    catalog.create_database("db")
    table = catalog.create_table("db.t", Schema(pa.schema([("s", pa.string())])))
    table.write(pa.table({"s": ["\x1b[2Jred\x07", "two\nlines\t\x9b1m", "é 😀 \u202eover"]}))
    assert run(["show", "db.t", "-w", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    assert [line.rstrip() for line in shown.splitlines()[2:]] == [
        r"\x1b[2Jred\x07",
        r"two\nlines\t\x9b1m",
        r"é 😀 \u202eover",
    ]
    assert run(["show", "db.\x1b[2J", "-w", str(tmp_path)]) == 1
    assert "\x1b" not in capsys.readouterr().err
    assert run(["show", "db.t", "--json", "-w", str(tmp_path)]) == 0
    assert json.loads(capsys.readouterr().out)[0] == {"s": "\x1b[2Jred\x07"}


def test_a_page_of_fewer_than_no_rows_is_refused(shell: Shell) -> None:
    answer = shell("show", "db.t", "--limit", "-1")
    assert (answer.code, answer.out) == (2, "")
    assert "--limit" in answer.err
