"""Tables that Java reads are never reported as damaged, and no plan removes a file that Java reads.

All golden tables, and all kinds of the compatibility page as each version of Java writes them, with compactions, a tag, a
branch, deletes, a new column and an overwrite. A sample runs in `make test`, all in `make soak`.
"""

from __future__ import annotations

import contextlib
import io
import json
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lsm_core import Catalog
from lsm_core.cli.app import run
from lsm_core.errors import UnsupportedFeature
from lsm_core.format.snapshot import CommitKind
from lsm_core.maintenance.checks.outcome import CheckLimits
from lsm_core.metadata import snapshots
from lsm_core.options import EXTERNAL_ROOTS
from scripts.compatibility import KINDS, VERSIONS, Kind
from tests.golden.cases import Case, cases
from tests.support.peers import JavaPaimon, peer_module
from tests.support.samples import one_in, sample

VERBS = (
    ("status",),
    ("health",),
    ("expire", "--dry-run", "--retain-max", "1", "--retain-min", "1", "--older-than", "0 s"),
    ("repair", "--dry-run"),
    ("remove-unexisting-files", "--dry-run"),
    ("remove-unexisting-manifests", "--dry-run"),
    ("compact", "--dry-run", "--full"),
    ("orphans", "--dry-run"),
)
DAMAGE = re.compile(r"corrupt|damag|unreadable|set aside|Traceback", re.IGNORECASE)
HINTS = re.compile(r"by which damage is found|lists damaged and lost ones|looks for damaged (ones|metadata)")
"""Advice of verbs that found no damage, and reasons of refusals."""
CALM = CheckLimits(idle_ms=1 << 60, ro_lag_ms=1 << 60)
"""Limits of checks for tables that nobody has maintained for years."""
SAMPLE = ("changelog producer lookup", "primary key clustered by other columns", "file format CSV")
"""Kinds of `make test`, which were called damaged: rows of an overwrite without changelog; files that are not sorted by
key; files that are read with the help of their schema."""
Reads = dict[tuple[str, str], Any]


def _texts_of_damage(warehouse: Path) -> list[str]:
    """Return the lines in which a verb or a check reports damage, and the plans that would remove what exists."""
    found = []
    for verb, *arguments in VERBS:
        out = io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
            run([verb, "db.t", *arguments, "-w", str(warehouse)])
        lines = out.getvalue().replace(str(warehouse), "").splitlines()
        found += [f"{verb}: {line}" for line in lines if DAMAGE.search(HINTS.sub("", line))]
    table = Catalog(str(warehouse)).table("db.t")
    for action in ("remove_unexisting_files", "remove_unexisting_manifests"):
        with contextlib.suppress(UnsupportedFeature):
            found += [f"{action}: {item}" for item in table.plan_maintenance(action).items]
    with contextlib.suppress(UnsupportedFeature):
        failed = [report.text for report in table.check(limits=CALM, deep=True) if not report.passed]
        found += [text for text in failed if not text.startswith("not evaluated: UnsupportedFeature")]
    return found


def _different_compactions(warehouse: Path) -> list[str]:
    """Return the compactions whose rows `dredge verify` calls different from the rows before."""
    table = Catalog(str(warehouse)).table("db.t")
    different = []
    for snapshot in snapshots.iterate(table.store):
        before = snapshot.id - 1
        if snapshot.commit_kind is CommitKind.COMPACT and before in snapshots.list_ids(table.store):
            with contextlib.suppress(UnsupportedFeature):
                report = table.verify(before, snapshot.id)
                different += [f"snapshot {snapshot.id}: {item}" for item in report.differences]
    return different


def _maintain(warehouse: Path, *, expire: bool) -> None:
    """Remove every file that orphan removal plans, however young, and, if ``expire``, all snapshots but the newest."""
    table = Catalog(str(warehouse)).table("db.t")
    if expire:
        table.expire_snapshots(retain_max=1, retain_min=1, older_than_ms=1 << 42)
    table.remove_orphan_files(older_than_ms=int(time.time() * 1000) - 1, max_share=100)
    table.sweep_trash(now_ms=1 << 42)


def _reads_of_java(java: Callable[..., Any], root: Path) -> Reads:
    """Return the rows of the table, of all snapshots and tags and of the branches, and all changes, or Java's error."""
    branches = [f"db.t$branch_{path.name.removeprefix('branch-')}" for path in (root / "branch").glob("branch-*")]
    asked: list[tuple[str, str, dict[str, Any]]] = []
    for name in ("db.t", *branches):
        ids = [int(snapshot["id"]) for snapshot in java("snapshots", table=name)["snapshots"]]
        asked.append((name, "read", {}))
        asked += [(name, f"read {number}", {"options": {"scan.snapshot-id": str(number)}}) for number in ids]
        asked += [(name, "stream_read", {"from_snapshot": min(ids)})] if ids else []
    tags = [path.name.removeprefix("tag-") for path in (root / "tag").glob("tag-*") if path.is_file()]
    asked += [("db.t", f"read tag {name}", {"options": {"scan.tag-name": name}}) for name in tags]
    reads: Reads = {}
    for name, what, arguments in asked:
        try:
            answer = java(what.split()[0], table=name, **arguments)
            rows = answer["rows"] if "rows" in answer else answer["events"]
            reads[name, what] = sorted(json.dumps(row, sort_keys=True) for row in rows)
        except peer_module().PeerError as error:
            reads[name, what] = f"error: {str(error)[:80]}"
    return reads


def _rows_of_golden(case: Case, place: Path) -> tuple[Path, Any]:
    warehouse = Path(case.unpack(place).root).parent.parent
    return warehouse, lambda: Catalog(str(warehouse)).table("db.t").to_arrow().to_pylist()


@pytest.mark.parametrize("case", one_in(24, cases(), 1), ids=lambda case: case.name)
def test_no_golden_table_is_called_damaged(case: Case, tmp_path: Path) -> None:
    """Reads of golden tables equal Java's (tests/golden), so that they stand for Java's here."""
    warehouse, rows = _rows_of_golden(case, tmp_path)
    assert _texts_of_damage(warehouse) == []
    assert _different_compactions(warehouse) == []
    before = rows()
    for expire in (False, True):
        _maintain(warehouse, expire=expire)
        assert repr(rows()) == repr(before)
        assert _texts_of_damage(warehouse) == []


@pytest.fixture(scope="module", params=["session", *(pytest.param(v, marks=pytest.mark.soak) for v in VERSIONS[1:])])
def java(request: pytest.FixtureRequest, java_of: Callable[[str], JavaPaimon]) -> JavaPaimon:
    """The running JVM of one version; "session" is that of other tests."""
    version = peer_module().DEFAULT_VERSION if request.param == "session" else request.param
    return java_of(version)


def _live(kind: Kind, java: Callable[..., Any], outside: Path) -> bool:
    """Write a history of the kind with Java; return False if this version has no such table."""
    schema = kind.schema()
    options = {key: value.replace("{outside}", str(outside)) for key, value in schema["options"].items()}
    branch = options.pop("scan.fallback-branch", None)
    if "sequence.snapshot-ordering" not in options:  # such tables are compacted by dedicated jobs only
        options.pop("write-only")
    steps: list[tuple[str, dict[str, Any]]] = [
        ("write", {"rows": kind.rows(8), "compact": "minor"}),
        ("compact", {"full": True}),
        ("tag", {"name": "t1"}),
        ("branch", {"name": branch or "b1"}),
        ("write", {"rows": kind.rows(16), "compact": "none"}),
        ("alter", {"changes": [{"change": "add_column", "name": "extra", "type": "INT"}]}),
        ("write", {"rows": kind.rows(20), "compact": "minor"}),
        ("write", {"rows": [row for row in kind.rows(30) if row["p"]], "overwrite": {"partition": {"p": "1"}}}),
        ("compact", {"full": True}),
        ("write", {"rows": kind.rows(40), "compact": "none", "table": f"db.t$branch_{branch or 'b1'}"}),
    ]
    if not kind.partitioned:
        steps = [step for step in steps if "overwrite" not in step[1]]
    deletes = options.get("merge-engine") not in {"first-row", "partial-update"}
    if kind.keys and deletes:
        rows = [{**row, "_kind": "-D"} for row in kind.rows(2)[:3]]
        steps.insert(5, ("write", {"rows": rows, "compact": "minor"}))
    elif not kind.keys and "deletion-vectors.enabled" in options:
        steps.insert(5, ("delete_rows", {"where": [["k", "<", 3]]}))
    if branch is not None:
        change = {"change": "set_option", "key": "scan.fallback-branch", "value": branch}
        steps = [step for step in steps if step[0] != "alter"] + [("alter", {"changes": [change]})]
    try:
        java("create", schema={**schema, "options": options})
        java("write", rows=kind.rows(0), compact="none")
    except peer_module().PeerError:
        return False
    for op, arguments in steps:
        with contextlib.suppress(peer_module().PeerError):  # the driver does not compact every kind
            java(op, **arguments)
    return True


@pytest.mark.paimon_java
@pytest.mark.parametrize("kind", sample(KINDS, lambda kind: kind.name in SAMPLE), ids=lambda kind: kind.name)
def test_no_kind_that_java_wrote_is_called_damaged(
    kind: Kind, java: JavaPaimon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    warehouse, outside = tmp_path / "wh", tmp_path / "outside"
    outside.mkdir()
    monkeypatch.setenv(EXTERNAL_ROOTS, f"{outside}:rw")
    Catalog(str(warehouse)).create_database("db")

    def call(op: str, **arguments: Any) -> dict[str, Any]:
        return dict(java.call(op, **{"warehouse": str(warehouse), "table": "db.t", **arguments}))

    if not _live(kind, call, outside):
        pytest.skip(f"this version of Java has no table of the kind {kind.name}")
    root = warehouse / "db.db" / "t"
    before = _reads_of_java(call, root)
    assert not str(before["db.t", "read"]).startswith("error")
    assert _texts_of_damage(warehouse) == []
    assert _different_compactions(warehouse) == []
    _maintain(warehouse, expire=False)
    assert _reads_of_java(call, root) == before
    _maintain(warehouse, expire=True)
    after = _reads_of_java(call, root)
    kept = {place: rows for place, rows in after.items() if place[1] != "stream_read"}
    assert kept == {place: before[place] for place in kept}
    assert {name for name, _ in kept} == {name for name, _ in before}
    assert _texts_of_damage(warehouse) == []


def test_texts_of_damage_name_a_lost_file(tmp_path: Path) -> None:
    """The sweep sees damage where there is some."""
    warehouse, _ = _rows_of_golden(next(case for case in cases() if case.name == "append_unaware"), tmp_path)
    next((warehouse / "db.db" / "t").rglob("bucket-*/data-*")).unlink()
    with pytest.raises(AssertionError):
        assert _texts_of_damage(warehouse) == []
