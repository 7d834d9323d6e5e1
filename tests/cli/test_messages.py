"""What the command line says when something is missing, misspelt, broken or done already: one line, with its name."""

from __future__ import annotations

import json
import os
import shutil
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

import pyarrow as pa
import pytest

from dredge.platform_core.resources.warehouse import WarehouseResource, list_tables
from lsm_core import Catalog, Schema, SchemaChange
from lsm_core.cli.app import run
from lsm_core.errors import InvalidOption
from lsm_core.metadata.store import TableStore
from tests.cli.shell import Shell
from tests.maintenance.tables import HOUR


def test_what_is_named_and_not_there_is_said(shell: Shell) -> None:
    for verb in ("plan", "compact"):
        refused = shell(verb, "db.t", "--bucket", "7")
        assert (refused.code, refused.out) == (1, "")
        assert "option 'buckets' of table db.t cannot be 7; accepted: 0 to 0: there is 1 bucket" in refused.err
        answer = shell(verb, "db.t", "--partition", "dt=zz")
        assert answer.code == 0 and "dt=zz" in answer.out and "no file lies there" in answer.out
    assert shell("health", "db.t", "--partition", "dt=zz").out == "db.t: no file lies there: dt=zz\n"
    assert shell("health", "db.t", "--partition", "dt=zz", "--json").json == []


def test_the_check_of_a_damaged_or_lost_data_file_names_what_brings_it_back(shell: Shell) -> None:
    file = min((shell.place / "db.db" / "t" / "dt=a").rglob("data-*.parquet"))
    whole = file.read_bytes()
    file.write_bytes(whole[:100])
    cut = shell("check", "db.t", "--deep")
    assert cut.code == 1 and "; put the files back from a copy, or give up their rows: move the files away" in cut.err
    file.unlink()
    lost = shell("check", "db.t", "--deep")
    assert lost.code == 1 and "`dredge remove-unexisting-files db.t`" in lost.err and "dredge repair" not in lost.err
    (shell.place / "db.db" / "t" / "snapshot" / "snapshot-1").write_text("{")
    assert "`dredge repair db.t` says what can be done" in shell("check", "db.t").err


def test_a_plan_without_work_says_what_was_looked_at_and_which_command_helps(shell: Shell) -> None:
    file = min((shell.place / "db.db" / "t" / "dt=a").rglob("data-*.parquet"))
    file.write_bytes(file.read_bytes()[:100])
    for words in (("repair", "db.t", "--dry-run"), ("repair", "db.t"), ("plan", "db.t", "--action", "repair")):
        answer = shell(*words)
        assert answer.code == 0 and "every snapshot, tag, manifest list and manifest was read" in answer.out
        assert "`dredge check db.t --deep` lists damaged and lost ones" in answer.out
    missing = shell("remove-unexisting-files", "db.t", "--dry-run").out
    assert "every file that was looked for exists; `dredge check db.t --deep` looks for damaged ones" in missing
    assert "`dredge repair db.t --dry-run`" in shell("remove-unexisting-manifests", "db.t", "--dry-run").out
    file.unlink()
    assert file.name in shell("remove-unexisting-files", "db.t", "--dry-run").out
    for verb in (("recover",), ("rescale", "--bucket-num", "2"), ("drop-partitions",)):
        answer = shell(verb[0], "db.t", *verb[1:], "--partition", "dt=zz", "--dry-run")
        assert (answer.code, "no such partition holds a file" in answer.out) == (0, True), verb


def test_a_list_without_entries_is_one_line(shell: Shell) -> None:
    assert shell("plans", "db.t").out == "db.t: plans that wait for approval: none\n"
    assert shell("trash", "db.t").out == "db.t: trash: none\n"
    assert shell("plans", "db.t", "--json").json == {"table": "db.t", "waiting": []}
    done = shell("maintain", "db", "--action", "expire_tags")
    assert (done.code, done.out.count("\n")) == (0, 1) and ": nothing to do for db (expire_tags)" in done.out
    assert ": nothing to do for db (expire_tags)" in shell("maintain", "db", "--action", "expire_tags", "--dry-run").out


def test_durations_are_refused_by_the_name_of_their_option(shell: Shell) -> None:
    assert "option '--window' cannot be 'soon'" in shell("metrics", "--window", "soon").err


def test_a_verb_or_a_deletion_that_is_not_there_is_one_line_that_helps(shell: Shell) -> None:
    assert (
        shell("restor", "db.t", "x").err
        == "dredge: there is no verb 'restor'; did you mean restore or report? (see dredge --help)\n"
    )
    unknown = shell("frobnicate")
    assert unknown.code == 2 and "verbs are " in unknown.err and ", compact, " in unknown.err
    assert shell("--nope").err.endswith("(see dredge --help)\n")
    for name in ("../x", "a/b", "x" * 400, "nope"):
        refused = shell("restore", "db.t", name)
        assert refused.code == 1 and refused.err.count("\n") == 1
        assert refused.err.startswith(f"dredge: option 'trash_id' of table db.t cannot be '{name[:9]}"), refused.err


@pytest.mark.parametrize(("text", "reason"), [(None, "No such file"), ("soon", "'soon', not epoch milliseconds")])
def test_a_clock_file_that_tells_no_time_is_one_line(
    shell: Shell,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    text: str | None,
    reason: str,
) -> None:
    clock = tmp_path / "clock"
    if text is not None:
        clock.write_text(text)
    assert run(["status", "-w", str(shell.place), "--clock", f"file:{clock}"]) == 1
    assert capsys.readouterr().err.startswith(f"dredge: option '--clock' cannot be 'file:{clock}'; accepted: ")
    monkeypatch.setenv("DREDGE_CLOCK", f"file:{clock}")
    assert run(["status", "-w", str(shell.place)]) == 1
    printed = capsys.readouterr().err
    assert printed.startswith(f"dredge: option 'DREDGE_CLOCK' cannot be 'file:{clock}'; accepted: ")
    assert reason in printed and printed.count("\n") == 1


def test_a_broken_table_does_not_hide_the_others(shell: Shell) -> None:
    catalog = Catalog(shell.place)
    catalog.create_table("db.u", Schema(pa.schema([("a", pa.int32())]))).write({"a": [1]})
    (shell.place / "db.db" / "t" / "snapshot" / "snapshot-6").write_text("{")
    answer = shell("status", "--json")
    assert (answer.code, [(row["table"], row["files"]) for row in answer.json]) == (1, [("db.t", None), ("db.u", 1)])
    assert [(row["error"] or "")[:12] for row in answer.json] == ["corrupt file", ""]
    assert "db.t" in (shown := shell("status").out) and "be looked at: corrupt file" in shown
    assert answer.err.startswith("dredge: 1 of 2 tables cannot be looked at: db.t: corrupt file")
    assert answer.err.count("\n") == 1
    assert shell("status", "db.t").code == 1


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "place", ["snapshot/LATEST", "snapshot/EARLIEST", "schema/schema-0", "snapshot/snapshot-6", "dredge/trash/x.json"]
)
def test_what_is_no_regular_file_is_one_tables_line(shell: Shell, place: str) -> None:
    root = shell.place
    shutil.copytree(root / "db.db" / "t", root / "db.db" / "other")
    path = root / "db.db" / "t" / place
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    os.mkfifo(path)
    shown = shell("status", "--json")
    assert "regular file" in shown.err and "db.other" not in shown.err
    assert {"db.t", "db.other"} <= {row["table"] for row in shown.json}


def test_a_failure_of_any_kind_is_one_tables_line(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    Catalog(shell.place).create_table("db.u", Schema(pa.schema([("a", pa.int32())]))).write({"a": [1]})
    opened = Catalog.store

    def store(catalog: Catalog, name: str) -> TableStore:
        if name == "db.t":
            raise ValueError("Exceeds the limit (4300 digits)")
        return opened(catalog, name)

    monkeypatch.setattr(Catalog, "store", store)
    answer = shell("status", "--json")
    assert (answer.code, [row["files"] for row in answer.json]) == (1, [None, 1])
    assert answer.json[0]["error"] == "unexpected ValueError: Exceeds the limit (4300 digits)"
    assert answer.err.startswith("dredge: 1 of 2 tables cannot be looked at: db.t: unexpected ValueError")


def test_a_database_that_cannot_be_listed_hides_no_other(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    Catalog(shell.place).create_database("other")
    listed = Catalog.list_tables

    def list_tables(catalog: Catalog, database: str) -> list[str]:
        if database == "other":
            raise PermissionError("not yours")
        return listed(catalog, database)

    monkeypatch.setattr(Catalog, "list_tables", list_tables)
    for verb in ("status", "tables"):
        answer = shell(verb)
        assert answer.code == 1 and "db.t" in answer.out and "other" in answer.err and "not yours" in answer.err


def test_a_folder_that_cannot_be_looked_into_is_one_line_and_hides_no_other(shell: Shell) -> None:
    (shell.place / "db.db" / "loop").symlink_to("loop")
    answer = shell("status", "--json")
    assert (answer.code, [row["table"] for row in answer.json]) == (1, ["db.loop", "db.t"])
    assert "symbolic links" in answer.json[0]["error"] and answer.json[1]["files"]
    (shell.place / "db.db" / "loop").unlink()
    (shell.place / "db.db" / "t\udcff").symlink_to("t")  # a name that is not UTF-8
    answer = shell("status", "--json")
    assert answer.code == 1 and answer.json[0]["files"] and "t\\udcff" in answer.json[1]["error"]
    for verb in ("status", "tables"):
        assert "db.t\\udcff" in shell(verb).out


def test_a_folder_that_is_no_warehouse_is_not_an_empty_one(
    shell: Shell, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "photos" / "2024").mkdir(parents=True)
    (tmp_path / "fresh").mkdir()
    for place, message in (
        (tmp_path / "photos", "is no warehouse: no folder in it is a database (NAME.db)"),
        (shell.place / "db.db", "is a database, not a warehouse; its warehouse is one folder up"),
        (shell.place / "db.db" / "t", "is a table, not a warehouse; its warehouse is two folders up"),
    ):
        for verb in ("status", "tables"):
            assert run([verb, "-w", str(place)]) == 1
            assert message in capsys.readouterr().err
    assert run(["status", "-w", str(tmp_path / "fresh")]) == 0
    assert capsys.readouterr().out.endswith("\nno tables yet\n")


def test_the_score_says_which_end_is_good(shell: Shell) -> None:
    for shown in (shell("status").out, shell("health", "db.t").out):
        assert "score (0 is healthy)" in shown


def test_a_column_that_is_no_key_is_named(shell: Shell) -> None:
    for key, message in (("nosuch=1", "nosuch"), ("v=1", "v")):
        answer = shell("explain", "db.t", f"dt=a,{key}")
        assert answer.code == 1 and answer.out == "" and message in answer.err and "db.t" in answer.err
    catalog = Catalog(shell.place)
    fields = pa.schema([pa.field("id", pa.int64(), nullable=False), ("a", pa.int64())])
    catalog.create_table("db.lone", Schema(fields, primary_keys=["id"], options={"bucket": "1"})).write(
        {"id": [1], "a": [2]}
    )
    assert (
        shell("explain", "db.lone", "nosuch=1").err == "dredge: table db.lone has no column 'nosuch'; its key is id\n"
    )
    assert "columns id, not a" in shell("explain", "db.lone", "a=1").err
    assert "KEY is id=VALUE, or the value alone" in shell("explain", "db.lone", "nosuch").err
    texts = pa.schema([pa.field("code", pa.string(), nullable=False), ("a", pa.int64())])
    catalog.create_table("db.texts", Schema(texts, primary_keys=["code"], options={"bucket": "1"})).write(
        {"code": ["x=1"], "a": [2]}
    )
    assert "no column" not in shell("explain", "db.texts", "x=1").out
    message = "there is no column 'nosuch', so 'nosuch=1' was taken for the value of code"
    assert message in shell("explain", "db.texts", "nosuch=1").out
    assert shell("explain", "db.lone", "1").out.startswith("db.lone id=1: 1 version")


def test_a_verb_whose_packages_are_missing_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from lsm_core.cli import app as module

    demo = next(entry for entry in entry_points(group="dredge.verbs") if entry.name == "demo")

    def lacking(entry: EntryPoint) -> None:
        raise ModuleNotFoundError("No module named 'dagster'", name="dagster")

    monkeypatch.setattr(EntryPoint, "load", lacking)
    assert run(["demo"]) == 1
    printed = capsys.readouterr().err
    assert printed.startswith(
        "dredge: 'dredge demo' needs the package 'dagster', which is not installed; pip install 'dredge["
    )
    assert demo.extras and all(extra in printed for extra in demo.extras)

    def ours(entry: EntryPoint) -> None:
        raise ModuleNotFoundError("No module named 'lsm_core.nosuch'", name="lsm_core.nosuch")

    monkeypatch.setattr(EntryPoint, "load", ours)
    assert module.run(["demo"]) == 1
    assert "unexpected ModuleNotFoundError" in capsys.readouterr().err


def test_one_torn_deletion_record_hides_no_other(shell: Shell) -> None:
    for keep in ("4", "1"):
        shell("expire", "db.t", "--retain-max", keep)
        shell.clock += 1
    folder = shell.place / "db.db" / "t" / "dredge" / "trash"
    torn, whole = sorted(folder.glob("expire-*.json"))
    text = torn.read_bytes()
    torn.write_bytes(text[: len(text) // 2])
    listed = shell("trash", "db.t", "--json")
    assert (listed.code, [record["trash_id"] for record in listed.json]) == (1, [whole.stem])
    assert listed.err.startswith("dredge: not looked at: corrupt file ") and torn.name in listed.err
    assert whole.stem in shell("trash", "db.t").out
    status = shell("status", "--json")
    assert (status.code, [row["trash"] for row in status.json]) == (1, [1])
    assert torn.name in status.err and status.err.count("\n") == 1
    shell.clock += 2 * HOUR
    swept = shell("trash", "db.t", "--sweep", "--json")
    assert (swept.code, swept.json["records"]) == (1, [whole.stem])
    assert swept.json["files_deleted"] > 0 and torn.name in swept.err
    assert [path.name for path in folder.iterdir()] == [torn.name]
    refused = shell("restore", "db.t", torn.stem)
    assert refused.code == 1 and torn.name in refused.err
    torn.write_bytes(text)
    assert shell("trash", "db.t", "--sweep").code == 0
    assert list(folder.iterdir()) == []
    assert shell("show", "db.t").code == 0


def test_a_plan_that_was_applied_says_by_what_and_is_no_failure(shell: Shell) -> None:
    plan = shell("plan", "db.t", "--json").json["hash"]
    assert shell("apply", "db.t", plan).code == 0
    again = shell("apply", "db.t", plan)
    assert (again.code, again.err) == (0, "")
    assert again.out.startswith(f"plan {plan} is already applied, snapshot 7, at 2023-")
    assert again.out.endswith(" UTC; nothing was changed now\n")
    before = shell("apply", "db.t", plan, "--json").json
    assert (before["snapshot_id"], before["applied_before"]["snapshot_id"]) == (None, 7)
    shell("compact", "db.t", "--full")
    expiry = shell("plan", "db.t", "--action", "expire_snapshots", "--retain-max", "1", "--json").json["hash"]
    assert "expired snapshots 1 to 7" in shell("apply", "db.t", expiry).out
    assert "is already applied, run " in shell("apply", "db.t", expiry).out
    assert (
        "already applied, snapshot 7" in shell("apply", "db.t", plan).out
    )  # told by the ledger: the snapshot has expired


def test_a_plan_that_somebody_else_forestalled_is_not_said_to_be_applied(shell: Shell) -> None:
    plan = shell("plan", "db.t", "--json").json["hash"]
    assert shell("compact", "db.t", "--full").code == 0
    stale = shell("apply", "db.t", plan)
    assert "already applied" not in stale.out and "is gone" in stale.out


def test_a_plan_that_no_longer_fits_names_its_table(shell: Shell) -> None:
    plan = shell("plan", "db.t", "--json").json["hash"]
    stale = shell("apply", "db.t", plan, "--set", "num-levels=7")
    assert (stale.code, stale.out) == (1, "")
    assert stale.err.startswith("dredge: the plan for table db.t is stale: option num-levels was ")
    first = shell("expire", "db.t", "--retain-max", "4", "--json").json["trash_id"]
    shell("expire", "db.t", "--retain-max", "2")
    refused = shell("restore", "db.t", first)
    assert refused.err.startswith("dredge: plan for table db.t refused by rule no-holes-in-history: restore ")


def test_a_flag_of_another_action_is_refused_before_anything_is_planned(shell: Shell) -> None:
    refused = shell("plan", "db.t", "--retain-max", "1")
    assert (refused.code, refused.out) == (2, "")
    assert (
        "--retain-max is for expire_snapshots, expire_changelogs; compact takes --full, --compact-strategy, --partition"
        in refused.err
    )
    refused = shell("plan", "db.t", "--action", "trash", "--full")
    assert refused.code == 2 and "--full is for compact; trash takes no flags" in refused.err
    assert shell("plan", "db.t", "--action", "rescale", "--partition", "dt=a", "--bucket-num", "2").code == 0
    planned = shell("plan", "db.t", "--action", "rescale", "--where", "dt >= 'b'", "--bucket-num", "2", "--json").json
    assert {item["partition_text"] for item in planned["items"]} == {"dt=b"}
    assert "nothing was compacted" in shell("compact", "db.t", "--full", "--where", "dt IN ('zz')").out
    refused = shell("compact", "db.t", "--where", "v = 1")
    assert refused.code == 1 and "'v' is not a partition column; they are dt" in refused.err
    refused = shell("compact", "db.t", "--where", "dt = 'b'", "--partition", "dt=a")
    assert refused.code == 1 and "accepted: no value together with partitions" in refused.err
    missing = shell("plan", "db.t", "--action", "restore")
    assert missing.code == 1 and "'trash_id' of table db.t" in missing.err
    helped = shell("plan", "--help").out
    assert "--bucket-num" in helped and "(expire_snapshots," in helped


def test_apply_without_a_hash_says_which_plans_there_are(shell: Shell) -> None:
    bare = shell("apply", "db.t")
    assert (
        bare.code == 1
        and "which plan of db.t" in bare.err
        and "no plan is saved; `dredge plan db.t` makes one" in bare.err
    )
    plan = shell("plan", "db.t", "--json").json["hash"]
    assert f"saved plans: {plan}" in shell("apply", "db.t").err
    both = shell("apply", "db.t", plan, "--file", "x.json")
    assert both.code == 1 and "and not both" in both.err and plan in both.err


def test_the_way_to_undo_names_the_table(shell: Shell) -> None:
    shown = shell("expire", "db.t", "--retain-max", "1").out
    (trash_id,) = [record["trash_id"] for record in shell("trash", "db.t", "--json").json]
    assert f"undo with: dredge restore db.t {trash_id}\n" in shown
    command = shown.partition("undo with: dredge ")[2].splitlines()[0].split()
    assert "can be read again" in shell(*command).out


def test_a_pattern_means_every_table_that_it_fits(shell: Shell) -> None:
    catalog = Catalog(shell.place)
    schema = Schema(pa.schema([("a", pa.int64())]), options={"bucket": "-1"})
    for name in ("db.u", "db.v"):
        catalog.create_table(name, schema).write(pa.table({"a": [1]}))
    shown = shell("compact", "db.*")
    assert (shown.code, shown.err) == (0, "")
    assert [line for line in shown.out.splitlines() if line.endswith(":")] == ["db.t:", "db.u:", "db.v:"]
    assert "runs 5 -> 1" in shown.out and shown.out.count("nothing was compacted") == 2
    listed = shell("expire", "*.[uv]", "--dry-run", "--json").json
    assert [plan["table"] for plan in listed] == ["db.u", "db.v"]
    planned = shell("plan", "db.*", "--full", "--json").json
    assert [(plan["table"], plan["action"]) for plan in planned] == [(f"db.{name}", "compact") for name in "tuv"]
    (shell.place / "db.db" / "u" / "schema" / "schema-0").write_text("{")
    broken = shell("compact", "db.*", "--full")
    assert broken.code == 1 and broken.err.startswith("dredge: 1 of 3 tables failed: db.u: ") and "db.v:" in broken.out
    whole = shell("compact", "db")
    assert whole.code == 1 and "db is a database; 'db.*' means all of its tables" in whole.err
    nothing = shell("compact", "x*")
    assert nothing.code == 1 and "no table of" in nothing.err and "x*" in nothing.err
    assert shell("compact", "nodb").code == 1


def test_what_is_no_hash_is_said_with_the_table(shell: Shell) -> None:
    for given in ("", "../x", "ZZ"):
        answer = shell("apply", "db.t", given)
        assert answer.code == 1 and "of table db.t cannot be" in answer.err and "the hash of a saved plan" in answer.err


def test_a_compaction_that_reads_nothing_claims_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    catalog = Catalog(tmp_path)
    catalog.create_database("db")
    fields = pa.schema([pa.field("id", pa.int64(), nullable=False), ("a", pa.int64())])
    schema = Schema(fields, primary_keys=["id"], options={"bucket": "1"})
    catalog.create_table("db.lone", schema).write({"id": [1], "a": [2]})
    assert run(["compact", "db.lone", "--full", "-w", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert "0 files in, 0 out, 1 upgraded" in printed
    assert "verified: by metadata alone: files changed their level, and none was read" in printed


def test_a_stored_sequence_field_that_is_no_column_is_named(tmp_path: Path) -> None:
    catalog = Catalog(tmp_path)
    catalog.create_database("db")
    fields = pa.schema([pa.field("id", pa.int64(), nullable=False), ("a", pa.string())])
    table = catalog.create_table("db.t", Schema(fields, primary_keys=["id"], options={"bucket": "1"}))
    for _ in range(2):
        table.write({"id": [1], "a": ["x"]})
    stored = tmp_path / "db.db" / "t" / "schema" / "schema-0"
    document = json.loads(stored.read_text())
    document["options"]["sequence.field"] = "nope"
    stored.write_text(json.dumps(document))
    table = catalog.table("db.t")
    for use in (table.to_arrow, lambda: table.compact(full=True), lambda: table.explain_row({"id": 1})):
        with pytest.raises(InvalidOption, match=r"option 'sequence\.field' of table db\.t cannot be 'nope'"):
            use()


def test_snapshots_to_compare_are_numbers(shell: Shell) -> None:
    table = Catalog(shell.place).table("db.t")
    with pytest.raises(InvalidOption, match=r"option 'snapshot id' of table db\.t cannot be '1'"):
        table.verify("1", 2)  # type: ignore[arg-type]


def test_options_without_effect_are_told_by_status(shell: Shell) -> None:
    Catalog(shell.place).alter_table("db.t", [SchemaChange.set_option("metastore.tag-to-partition", "dt")])
    message = "warning: db.t sets options that have no effect here: metastore.tag-to-partition\n"
    assert message in shell("status").out
    assert shell("status", "--json").json[0]["without_effect"] == ["metastore.tag-to-partition"]


def test_a_hint_that_hides_snapshots_is_told_by_status_with_the_remedy(shell: Shell) -> None:
    table = Catalog(shell.place).table("db.t")
    for key in range(3):
        table.write([{"dt": "a", "k": key}])
    ids = [snapshot.id for snapshot in table.snapshots()]
    folder = Path(table.store.root) / "snapshot"
    warning = "warning: db.t: the hint EARLIEST hides its snapshots from"
    assert warning not in shell("status").err
    (folder / "EARLIEST").write_text(str(ids[-1]))
    call = f"CALL sys.repair_earliest_snapshot('db.t', {ids[0]})"
    for words in (("status",), ("status", "db.t")):
        assert f"{warning} {ids[0]} on, which readers and expiry then ignore; run {call}" in shell(*words).err
    shell("sql", call, "--apply")
    assert warning not in shell("status").err
    assert (folder / "EARLIEST").read_text() == str(ids[0])


def test_a_table_without_schema_files_is_named_with_the_remedy(
    shell: Shell, capsys: pytest.CaptureFixture[str]
) -> None:
    root = shell.place / "db.db" / "t"
    (root.parent / "empty").mkdir()
    (root / "schema").rename(root / "kept")
    text = f"{root} has snapshots but no file in schema/; put schema-0 and the later schema files back from a copy"
    for words in (("status", "db.t"), ("repair", "db.t"), ("check", "db.t")):
        answer = shell(*words)
        assert answer.code == 1 and f"dredge: table db.t: {text}" in answer.err, words
    assert f"warning: db.t is left out: {text}" in shell("status").err
    assert run(["doctor", "-w", str(shell.place), "--json"]) == 1
    assert f"db.t is left out: {text}" in capsys.readouterr().out
    assert list_tables(WarehouseResource(path=str(shell.place))) == (
        [],
        [f"table db.t is left out: {text} (a `dredge copy-table` at work writes them last)"],
    )
    (root / "kept").rename(root / "schema")
    assert shell("status", "db.t").code == 0 and "left out" not in shell("status").err
