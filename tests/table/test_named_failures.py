"""Failures that once reached people raw: each has one line that names the thing, and its exit code."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from lsm_core.cli import app
from lsm_core.errors import CorruptFile, InvalidOption, InvalidSchema, OutOfMemory, StorageFailed
from lsm_core.files.formats.guard import decoding_errors
from lsm_core.table import Catalog, catalog
from tests.table.broken_store import BrokenStore

COLUMNS = pa.schema([("id", pa.int64()), ("v", pa.int64())])


class PanicException(BaseException):
    """As the binding of a Rust library raises it."""


def _keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "x")


@pytest.mark.parametrize("variable", ["AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"])
def test_a_store_address_without_scheme_names_its_variable(monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    _keys(monkeypatch)
    monkeypatch.setenv(variable, "localhost:9")
    with pytest.raises(InvalidOption, match=f"{variable}.*with its scheme"):
        Catalog("s3://bucket/wh").list_databases()


def test_a_panic_of_a_library_is_a_failure_of_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    _keys(monkeypatch)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://localhost:9")

    def panic(*_: object, **__: object) -> None:
        raise PanicException("called `Result::unwrap()` on an `Err` value")

    monkeypatch.setattr("lsm_core.storage.object_store.obstore.list_with_delimiter", panic)
    with pytest.raises(StorageFailed, match=r"Catalog\.list_databases of s3://bucket/wh failed"):
        Catalog("s3://bucket/wh").list_databases()


def test_an_unreachable_store_is_named_without_a_dump(monkeypatch: pytest.MonkeyPatch) -> None:
    _keys(monkeypatch)
    from obstore.exceptions import GenericError

    def refused(*_: object, **__: object) -> None:
        raise GenericError("Generic S3 error: connection refused\n\nDebug source:\nGeneric { store: S3 }")

    monkeypatch.setattr("lsm_core.storage.object_store.obstore.list_with_delimiter", refused)
    with pytest.raises(StorageFailed, match=r"s3://bucket/wh.*connection refused") as caught:
        Catalog("s3://bucket/wh", {"s3.endpoint": "http://localhost:9"}).list_databases()
    assert "Debug source" not in str(caught.value)


def test_a_lack_of_memory_is_no_corrupt_file() -> None:
    with (
        pytest.raises(OutOfMemory, match=r"reading /t/data-1\.parquet"),
        decoding_errors("/t/data-1.parquet", "Parquet"),
    ):
        raise pa.ArrowMemoryError("malloc of size 4096 failed")
    with pytest.raises(CorruptFile), decoding_errors("/t/data-1.parquet", "Parquet"):  # a forged length
        raise pa.ArrowMemoryError(f"malloc of size {1 << 60} failed")


def test_a_plan_of_a_read_only_warehouse_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    table = Catalog(tmp_path).create_table("db.t", COLUMNS, primary_keys=["id"], create_database=True)
    for value in range(6):
        table.write(pa.table({"id": [1], "v": [value]}))
    store = BrokenStore()
    monkeypatch.setattr(catalog, "file_io_for", lambda *_: (store, str(tmp_path)))
    store.fail("read-only")
    assert app.run(["plan", "db.t", "-w", str(tmp_path)]) == 0
    shown = capsys.readouterr()
    assert "compact db.t" in shown.out
    assert "plan of db.t cannot be saved" in shown.err


@pytest.mark.parametrize("kind", [pa.struct([]), pa.list_(pa.struct([])), pa.struct([("a", pa.struct([]))])])
def test_a_row_without_fields_is_refused_at_creation(tmp_path: Path, kind: pa.DataType) -> None:
    with pytest.raises(InvalidSchema, match=r"table db\.t: column 'v.*' is a ROW without fields"):
        Catalog(tmp_path).create_table("db.t", pa.schema([("v", kind)]), create_database=True)
    assert not (tmp_path / "db.db").exists()


@pytest.mark.parametrize("name", [".x", "*", "a?", "[a]", " a", "a "])
def test_a_new_table_has_no_name_that_reads_as_something_else(tmp_path: Path, name: str) -> None:
    made = Catalog(tmp_path)
    made.create_table("db.t", COLUMNS, create_database=True)
    with pytest.raises(InvalidSchema, match="cannot be the name of a new table"):
        made.create_table(f"db.{name}", COLUMNS)
    with pytest.raises(InvalidSchema, match="cannot be the name of a new table"):
        made.rename_table("db.t", f"db.{name}")


@pytest.mark.parametrize("flags", [[], ["--snapshot", "1", "--tag", "a"]])
def test_a_rollback_to_nowhere_names_its_flags(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], flags: list[str]
) -> None:
    Catalog(tmp_path).create_table("db.t", COLUMNS, create_database=True)
    assert app.run(["rollback", "db.t", *flags, "-w", str(tmp_path)]) == app.MISUSED
    shown = capsys.readouterr().err
    assert "exactly one of --snapshot, --tag, --timestamp, --watermark" in shown
    assert "{" not in shown


def test_an_interrupt_has_a_last_line_and_its_code(tmp_path: Path) -> None:
    Catalog(tmp_path).create_database("db")
    code = (
        "import signal, sys\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # a shell ignores it in background jobs
        "from lsm_core.cli import app\n"
        "from lsm_core.table import Catalog\n"
        "Catalog.list_databases = lambda self: signal.raise_signal(signal.SIGINT)\n"
        f"sys.argv = ['dredge', 'tables', '-w', {str(tmp_path)!r}]\n"
        "app.main()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=dict(os.environ))
    assert done.returncode == 130, (signal.SIGINT, done)
    assert done.stderr.splitlines()[-1].startswith("dredge: interrupted")
