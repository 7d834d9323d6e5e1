"""Reading options (`scan.*`, `incremental-*`) that no read can use: refused where they are given, told by status where they are stored."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

from lsm_core import Catalog, Schema, SchemaChange, Table
from lsm_core.cli.app import run
from lsm_core.errors import InvalidOption

FIELDS = pa.schema([pa.field("k", pa.int64(), nullable=False), pa.field("v", pa.string())])
JUNK = {
    "a mode without its key": ({"scan.mode": "from-snapshot"}, "scan.mode"),
    "a key of another mode": ({"scan.mode": "latest", "scan.snapshot-id": "1"}, "scan.mode"),
    "two versions": ({"scan.tag-name": "x", "scan.snapshot-id": "1"}, "scan.tag-name"),
    "no time": ({"scan.timestamp": "yesterday"}, "scan.timestamp"),
    "half a span": ({"incremental-between": "1"}, "incremental-between"),
    "a span that runs back": ({"incremental-between": "3,2"}, "incremental-between"),
    "times that run back": ({"incremental-between-timestamp": "20,10"}, "incremental-between-timestamp"),
    "no times": ({"incremental-between-timestamp": "a,b"}, "incremental-between-timestamp"),
}
TYPOS = {
    "scan.typo": "1",
    "SCAN.snapshot-id": "1",
    " scan.snapshot-id": "1",
    "scan.snapshotid": "1",
    "incremental-betwen": "1,2",
}


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    made = Catalog(tmp_path / "wh")
    made.create_database("db")
    return made


def create(catalog: Catalog, name: str = "db.t", **options: str) -> Table:
    table = catalog.create_table(name, Schema(FIELDS, ["k"], [], {"bucket": "1", **options}))
    table.write(pa.table({"k": [1], "v": ["a"]}, schema=FIELDS))
    return table


@pytest.mark.parametrize("key", TYPOS)
def test_a_mistyped_reading_option_is_an_error_wherever_it_is_given(
    catalog: Catalog, capsys: pytest.CaptureFixture[str], key: str
) -> None:
    table = create(catalog)
    wrong = rf"option '{key}' of table db\.t cannot be '{TYPOS[key]}'; accepted: .*scan\.snapshot-id"
    with pytest.raises(InvalidOption, match=wrong):
        table.copy({key: TYPOS[key]})
    with pytest.raises(InvalidOption, match=wrong):
        catalog.alter_table("db.t", [SchemaChange.set_option(key, TYPOS[key])])
    with pytest.raises(InvalidOption, match=f"option '{key}' of table db.other"):
        create(catalog, "db.other", **{key: TYPOS[key]})
    assert catalog.list_tables("db") == ["t"] and table.schema == catalog.table("db.t").schema
    if key == key.strip():  # the shell's words are trimmed
        assert run(["plan", "db.t", "-w", catalog.root, "--set", f"{key}={TYPOS[key]}"]) == 1
        assert f"'{key}' of table db.t" in capsys.readouterr().err


def test_the_nearest_name_is_suggested(catalog: Catalog) -> None:
    with pytest.raises(
        InvalidOption, match=r"accepted: scan\.snapshot-id, maybe; reading options are incremental-between, "
    ):
        create(catalog).copy({"scan.snapshotid": "1"})


def test_what_flinks_connector_asks_for_may_be_stored(catalog: Catalog, caplog: pytest.LogCaptureFixture) -> None:
    table = create(catalog, **{"scan.infer-parallelism": "false"})
    assert table.to_arrow().num_rows == 1
    with pytest.raises(InvalidOption, match=r"scan\.infer-parallelism"):
        table.copy({"scan.infer-parallelism": "true"})


@pytest.mark.parametrize("case", JUNK)
def test_reading_options_that_no_read_can_use_are_not_stored(catalog: Catalog, case: str) -> None:
    options, key = JUNK[case]
    with pytest.raises(InvalidOption, match=r"table db\.junk .*") as refused:
        catalog.create_table("db.junk", Schema(FIELDS, ["k"], [], {"bucket": "1", **options}))
    assert key in str(refused.value)
    assert catalog.list_tables("db") == []
    table = create(catalog)
    with pytest.raises(InvalidOption, match=r"table db\.t "):
        catalog.alter_table("db.t", [SchemaChange.set_option(name, value) for name, value in options.items()])
    assert catalog.table("db.t").schema == table.schema


@pytest.mark.parametrize("case", [*JUNK, "a typo"])
def test_status_warns_of_stored_ones_and_they_can_be_taken_away(
    catalog: Catalog, tmp_path: Path, capsys: pytest.CaptureFixture[str], case: str
) -> None:
    create(catalog, "db.fine", **{"scan.mode": "latest-full"})
    table = create(catalog)
    options = JUNK[case][0] if case in JUNK else {"scan.typo": "1"}
    path = Path(table.store.schema_path(0))
    stored = json.loads(path.read_text())
    path.write_text(json.dumps({**stored, "options": {**stored["options"], **options}}))
    warned = "there is no reading option scan.typo" if case == "a typo" else "reads fail: option '"
    assert run(["status", "-w", catalog.root]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("warning: ")]
    assert len(lines) == 1 and lines[0].startswith(f"warning: db.t: {warned}")
    assert run(["status", "-w", catalog.root, "--json"]) == 0
    rows = {row["table"]: row["warnings"] for row in json.loads(capsys.readouterr().out)}
    assert rows["db.fine"] == [] and rows["db.t"][0].startswith(warned)
    if case in JUNK:
        with pytest.raises(InvalidOption):
            catalog.table("db.t").to_arrow()
    # Other options can change before it is repaired, and then it is.
    catalog.alter_table("db.t", [SchemaChange.set_option("num-levels", "6")])
    catalog.alter_table("db.t", [SchemaChange.remove_option(name) for name in options])
    assert catalog.table("db.t").to_arrow().num_rows == 1
