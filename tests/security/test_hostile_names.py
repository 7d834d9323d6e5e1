"""Names and values that strangers chose reach neither the terminal nor the Dagster UI raw: a walk through every door."""

from __future__ import annotations

import io
import json
import re
import shutil
from pathlib import Path

import pyarrow as pa
import pytest

from lsm_core import Catalog, SchemaChange, Table
from lsm_core.cli import app, render
from lsm_core.clock import FixedClock
from lsm_core.maintenance.action import Declined

EVIL = "\x1b]0;pwned\x07\x1b[2J\u202egnp\u200b\u2066`|<b>*x*"
"""A name that would set the window's title, clear the screen, turn text around, hide, and be code, a cell and HTML in Markdown."""
STEERING = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff]")
NOW = 1_700_000_000_000


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """A table whose comment, column, option, partition, tag, branch, consumer and commit user are hostile."""
    catalog = Catalog(tmp_path / "wh", clock=FixedClock(NOW))
    columns = pa.schema([("id", pa.int64()), ("dt", pa.string()), (EVIL, pa.string())])
    made = catalog.create_table(
        "d.t", columns, primary_keys=["id", "dt"], partition_keys=["dt"], comment=EVIL, create_database=True
    )
    catalog.alter_table("d.t", [SchemaChange.set_option(f"my.{EVIL}", EVIL)])
    made = made.refresh()
    for number in range(6):
        made.write([{"id": number, "dt": EVIL, EVIL: EVIL}], properties={EVIL: EVIL})
    visible_tag = "tag \u202e\u2066"  # control characters are no names of tags
    made.create_tag(visible_tag, 1)
    made.create_branch("dev\u202e", visible_tag)
    root = Path(made.store.root)
    (root / "README \x1b[2J").write_text("x")
    shutil.copytree(root, root.parent / "x\x1b[2J\u202e")
    shutil.copytree(root.parent, root.parent.parent / "e\x9b2J\u2066.db")
    return made


def called(capsys: pytest.CaptureFixture[str], verb: str, *given: str) -> str:
    """What a verb printed, on both streams."""
    capsys.readouterr()
    app.run([verb, *given])
    captured = capsys.readouterr()
    return captured.out + captured.err


def arguments(warehouse: str) -> dict[str, list[list[str]]]:
    """Calls of every verb that show what is known of the table, by verb; plans and dry runs rather than changes."""
    where = ["-w", warehouse]
    table = ["d.t", *where]
    plain = {
        verb: [table]
        for verb in ("health", "snapshots", "files", "holds", "trash", "ledger", "check", "recover", "partitions")
    }
    planned = {
        "create_tag": [["d.t", "x\u202e", "--dry-run", *where]],
        "compact": [[*table], [*table, "--full"]],
    }
    plain |= {
        "status": [where, ["d.t", *where]],
        "tables": [where],
        "show": [["d.t", "1", *where]],
        "explain": [["d.t", "id=1", f"dt={EVIL}", *where]],
        "maintain": [["d", "--dry-run", *where]],
        "branch": [["list", *table], ["delete", "d.t", "no\u202e", *where]],
        "consumers": [["list", *table]],
        "tag": [["list", *table], ["delete", "d.t", "no\u202e", *where]],
        "sql": [[f"SELECT * FROM d.`{EVIL}`", *where]],
        "metrics": [where],
        "doctor": [where],
        "verify": [["d.t", "1", "2", *where]],
    }
    return plain | planned


def test_no_verb_lets_a_name_steer_the_terminal(
    table: Table, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    known = arguments(str(tmp_path / "wh"))
    assert set(app._VERBS) <= known.keys(), "a new verb is walked here, too"
    where = ["-w", str(tmp_path / "wh")]
    # Each as it refuses or plans, and with hostile arguments: a new action needs no line here.
    for action in app._load_action_verbs():
        known.setdefault(action.replace("-", "_"), []).extend(
            [
                ["d.t", "--dry-run", *where],
                [f"no{EVIL}", *where],
                ["d.t", f"--x{EVIL}", *where],
                ["d.t", f"x{EVIL}", "--dry-run", *where],
            ]
        )
    shown = []
    for verb, calls in known.items():
        for given in calls:
            text = called(capsys, verb.replace("_", "-") if verb not in app._VERBS else verb, *given)
            assert "Traceback" not in text, (verb, given, text)
            found = STEERING.search(text)
            assert found is None, (verb, given, repr(text[max(0, found.start() - 80) : found.end() + 20]))
            shown.append(text)
    assert any("\\x1b" in text for text in shown) and any("\\u202e" in text for text in shown)


def test_json_of_the_command_line_keeps_the_values_and_steers_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    render.print_json({"name": EVIL, "plain": "ü \U0001f600"})
    text = capsys.readouterr().out
    assert STEERING.search(text) is None and "ü \U0001f600" in text
    assert json.loads(text)["name"] == EVIL


def test_a_name_is_text_in_markdown() -> None:
    from dredge.platform_core import metadata

    texts = [
        metadata.options_table({EVIL: EVIL}),
        metadata.declined_table([Declined(EVIL, EVIL, EVIL, {})]),
        metadata.plain_cell(EVIL),
    ]
    for text in texts:
        assert STEERING.search(text) is None
        assert re.search(r"(?<!\\)[`<]", text) is None and "\\`" in text
        assert re.search(r"(?<!\\)\*x", text) is None


def test_what_is_shown_of_a_table_in_dagster_is_text(table: Table) -> None:
    from dredge.platform_core.metadata import table_metadata
    from dredge.platform_core.resources.warehouse import card_of

    card = card_of("d.t", table.store, None)
    for value in table_metadata(card).values():
        text = str(value.value)
        if isinstance(value.value, str):
            assert re.search(r"(?<!\\)`", text) is None and "\x1b[2J" not in text


def test_an_alert_mentions_nobody_and_steers_no_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    import requests

    from dredge.orchestration.sensors.alert_channels import Alert, Webhook

    sent: list[dict[str, object]] = []

    def post(self: requests.Session, url: str, **given: object) -> requests.Response:
        sent.append(given["json"])  # type: ignore[arg-type]
        response = requests.Response()
        response.status_code, response.raw = 200, io.BytesIO()
        return response

    monkeypatch.setattr(requests.Session, "post", post)
    alert = Alert(f"wh{EVIL}\n", [f"d.t{EVIL}\n <!channel> <https://evil.example|status>"], [EVIL], 1)
    Webhook("https://chat.example/x").send(alert)
    text = str(sent[0]["text"])
    assert STEERING.search(text) is None and STEERING.search(alert.subject) is None and "\n" not in alert.subject
    assert "<" not in text and "&lt;!channel&gt;" in text
    assert len(alert.text.splitlines()) == 3


def test_the_page_of_an_undo_holds_a_name_as_text(tmp_path: Path) -> None:
    from dredge.checks.undo_protection import keep_for_undo

    made = Catalog(tmp_path / "wh").create_table("d.t", pa.schema([("a", pa.int64())]), create_database=True)
    made.write([{"a": 1}])
    made.write([{"a": 2}])
    store = made.store
    store.name = f"d.{EVIL}"
    page = str(keep_for_undo(store, 2).metadata["undo"].value)
    prose, command, accept = page.split("\n```\n")
    assert STEERING.search(page) is None and "\n" not in command
    for text in (prose, accept):
        assert re.search(r"(?<!\\)<b", text) is None and re.search(r"(?<!\\)\*x", text) is None
