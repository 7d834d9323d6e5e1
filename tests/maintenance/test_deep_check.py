"""The check pages_readable: a sample of files within its budget, or every file, resumed where an earlier call stopped."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from lsm_core import Table
from lsm_core.errors import InvalidOption, SparkFailed
from lsm_core.format.snapshot import Snapshot
from lsm_core.maintenance import CheckLimits, CheckReport, DeepRead, PageProblem, check_table, run_check
from lsm_core.maintenance.checks import stored_pages
from lsm_core.maintenance.checks.stored_pages import progress_path, read_pages
from lsm_core.metadata import manifests, snapshots
from lsm_core.metadata.store import TableStore
from tests.cli.shell import Shell
from tests.maintenance.tables import keyed, rows

FILES = 6


def lived(tmp_path: Path, file_format: str = "parquet") -> Table:
    table = keyed(tmp_path, write_only="true", file__format=file_format, file__compression="none")
    for step in range(FILES):
        table.write(rows(range(300), v=1_000 * step))
    return table


def names_of(table: Table) -> list[str]:
    newest = snapshots.latest(table.store)
    assert newest is not None
    return sorted(manifests.live_entries(table.store, newest).column("file_name").to_pylist())


def flip(table: Table, name: str, text: bytes = b"s299") -> Path:
    (path,) = Path(table.store.root).rglob(name)
    data = bytearray(path.read_bytes())
    data[data.index(text)] ^= 0x80
    path.write_bytes(data)
    return path


def check(table: Table, deep: DeepRead | None = None, page_bytes: int = 1 << 20) -> CheckReport:
    return run_check(table.store, "pages_readable", CheckLimits(page_bytes=page_bytes, deep=deep))


class Counting:
    """A page reader that notes which files it reads, and may stop before a round."""

    def __init__(self, rounds: int = 100) -> None:
        self.names: list[str] = []
        self._rounds = rounds

    def __call__(self, store: TableStore, files: pa.Table) -> list[PageProblem]:
        if not self._rounds:
            raise SparkFailed("reading pages", "the cluster stopped")
        self._rounds -= 1
        self.names += files.column("file_name").to_pylist()
        return read_pages(store, files)


@pytest.mark.parametrize("file_format", ["parquet", "orc", "avro"])
def test_a_deep_check_reads_every_file_and_names_the_damaged_one(tmp_path: Path, file_format: str) -> None:
    table = lived(tmp_path, file_format)
    (sound,) = table.check(["pages_readable"], deep=True)
    assert (sound.outcome, sound.numbers["files read"], sound.numbers["files"]) == ("passed", FILES, FILES)
    path = flip(table, names_of(table)[3])
    (report,) = table.check(["pages_readable"], deep=True)
    assert report.outcome == "failed"
    assert len(report.problems) == 1 and str(path) in report.problems[0]
    assert not Path(progress_path(table.store)).exists(), "a pass that ended leaves no position"


def test_a_pass_that_is_interrupted_goes_on_behind_its_last_round_and_remembers_the_damage(tmp_path: Path) -> None:
    table = lived(tmp_path)
    names = names_of(table)
    flip(table, names[0])
    stopped = check(table, DeepRead(reader=Counting(2), round_bytes=1))
    assert "the cluster stopped" in stopped.text and not stopped.passed
    second = Counting()
    report = check(table, DeepRead(reader=second, round_bytes=1))
    assert sorted(second.names) == [names[0], *names[2:]], "the damaged file again, and what was not read yet"
    assert report.outcome == "failed" and names[0] in report.problems[0]
    assert report.numbers["files read"] == FILES
    assert "resumed after 2 files" in report.text


def test_a_pass_with_a_limit_of_bytes_takes_several_calls(tmp_path: Path) -> None:
    table = lived(tmp_path)
    read: list[str] = []
    for _ in range(FILES):
        reader = Counting()
        report = check(table, DeepRead(bytes=1, reader=reader))
        assert len(reader.names) == 1 and report.passed
        read += reader.names
    assert read == names_of(table)
    assert "left" not in report.text
    again = Counting()
    check(table, DeepRead(reader=again))
    assert len(again.names) == FILES, "the next pass starts at the first file"


def test_rounds_keep_few_files_in_memory_and_leave_none_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_pages, "_ROUND_FILES", 1)
    table, reader = lived(tmp_path), Counting()
    assert check(table, DeepRead(reader=reader)).passed
    assert reader.names == names_of(table)


def test_rounds_of_few_bytes_share_one_look_at_the_manifests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table, reader, looks = lived(tmp_path), Counting(), []
    iterate = manifests.iter_live

    def counted(store: TableStore, snapshot: Snapshot) -> Iterator[pa.Table]:
        looks.append(snapshot.id)
        return iterate(store, snapshot)

    monkeypatch.setattr(manifests, "iter_live", counted)
    assert check(table, DeepRead(reader=reader, round_bytes=1)).passed
    assert reader.names == names_of(table) and len(looks) == 1


@pytest.mark.parametrize(
    "text", ["", "[]", '{"position": 3}', '{"position":"", "files":-5, "bytes":0, "unread":0}', "{" * 9_000]
)
def test_a_position_that_cannot_be_read_starts_a_new_pass(tmp_path: Path, text: str) -> None:
    table = lived(tmp_path)
    path = Path(progress_path(table.store))
    path.parent.mkdir(parents=True)
    path.write_text(text)
    assert check(table, DeepRead()).numbers["files read"] == FILES


def test_a_file_that_a_commit_removed_meanwhile_is_no_damage(tmp_path: Path) -> None:
    table = lived(tmp_path)

    def late(store: TableStore, files: pa.Table) -> list[PageProblem]:
        if len(names_of(table)) > 1:
            table.compact(full=True)
            for name in files.column("file_name").to_pylist():
                next(iter(Path(store.root).rglob(name))).unlink()
        return read_pages(store, files)

    assert check(table, DeepRead(reader=late)).passed


def test_a_sample_stays_within_its_budget_and_changes_with_the_day(tmp_path: Path) -> None:
    table = lived(tmp_path)
    for name in names_of(table):
        flip(table, name)
    drawn = set()
    for _ in range(6):
        report = check(table, page_bytes=1)
        assert (report.numbers["files read"], report.outcome) == (1, "failed")
        drawn.add(report.problems[0])
        table.store.clock.advance(24 * 3_600_000)  # type: ignore[attr-defined]
    assert len(drawn) > 1
    assert check(table).numbers["files damaged"] == FILES


def test_the_shell_reads_every_page_and_refuses_flags_that_need_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table, dredge = lived(tmp_path), Shell(tmp_path / "wh", capsys)
    path = flip(table, names_of(table)[0])
    answer = dredge("check", "db.t", "--deep", "--json")
    reports = {report["check"]: report for report in answer.json}
    assert answer.code == 1 and str(path) in reports["pages_readable"]["text"]
    refused = dredge("check", "db.t", "--bytes", "1 mb")
    assert refused.code == 1 and "--deep" in refused.err


def test_a_deep_check_without_the_check_that_reads_pages_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidOption, match="pages_readable"):
        check_table(lived(tmp_path).store, ["tree_is_valid"], CheckLimits(deep=DeepRead()))
