"""The peers as tests use them: the real Java Paimon behind a pipe, the others each in an environment of its own.

A missing peer skips the test and says so; with CI=true it fails the run, because a green run without peers proves too little.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import queue
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, Final
from xml.etree import ElementTree
from zipfile import ZipFile

import pyarrow as pa
import pytest
from pyarrow import parquet

from lsm_core.errors import DredgeError
from lsm_core.options.table_options import PaimonVersion
from lsm_core.spark.java import find_java
from tests.support.spark import INTERPRETED, JAVA_OPTIONS

ROOT = Path(__file__).resolve().parent.parent.parent
PAIMON_JAVA = ROOT / ".peers" / "paimon-java"
PYPAIMON = ROOT / ".peers" / "pypaimon" / "bin" / "python"
PYPAIMON_RUST = ROOT / ".peers" / "pypaimon-rust" / "bin" / "python"
PYICEBERG = ROOT / ".peers" / "pyiceberg" / "bin" / "python"
ICEBERG_SPARK = ROOT / ".peers" / "iceberg-spark"
"""Folder with the jar of Iceberg's runtime for the Spark of `PAIMON_SPARK`."""
PAIMON_S3 = ROOT / ".peers" / "paimon-s3"
"""Folder with the jar of Java Paimon's file system for S3."""
OPENLINEAGE = ROOT / ".peers" / "openlineage"
"""Folder of dagster-openlineage with the packages that this environment lacks."""
PAIMON_SPARK = ROOT / ".peers" / "paimon-spark" / "bin" / "python"


def report_missing(reason: str) -> None:
    """Fail the test with CI=true, otherwise print the reason."""
    if os.environ.get("CI") == "true":
        pytest.fail(f"PEER MISSING: {reason}", pytrace=False)
    print(f"\nPEER MISSING: {reason}", file=sys.stderr)


def missing(reason: str) -> Any:
    """Fail the test with CI=true, otherwise skip the test and print the reason."""
    report_missing(reason)
    return pytest.skip(f"PEER MISSING: {reason}")


def peer_module() -> ModuleType:
    """Load the module ../shared/peer/peer.py, or the copy in tests/data/peer if it does not exist."""
    folder = ROOT.parent / "shared" / "peer"
    if not (folder / "peer.py").is_file():
        folder = ROOT / "tests" / "data" / "peer"
    name = "dredge_paimon_peer"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, folder / "peer.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def java_environment() -> None:
    """Set PAIMON_BUNDLE_JAR to the fetched jar, if the variable is not set.

    DREDGE_PAIMON_VERSION selects another version than 1.4.2 for all tests and benchmarks of the process.
    """
    version = os.environ.get("DREDGE_PAIMON_VERSION") or peer_module().DEFAULT_VERSION
    jar = PAIMON_JAVA / f"paimon-bundle-{version}.jar"
    if jar.is_file() or "DREDGE_PAIMON_VERSION" in os.environ:
        os.environ.setdefault("PAIMON_BUNDLE_JAR", str(jar))


def java_paimon() -> PaimonVersion:
    """Return the version of Paimon whose answers the JVM of `JavaPaimon()` gives, for tests of what versions changed."""
    return paimon_version(os.environ.get("DREDGE_PAIMON_VERSION") or peer_module().DEFAULT_VERSION)


def paimon_version(text: str) -> PaimonVersion:
    """Return the version of Paimon whose full number is ``text``, such as "2.1-SNAPSHOT"."""
    return PaimonVersion(".".join(re.split(r"[.-]", text)[:2]))


def refusal_of(act: Callable[[], object]) -> str:
    """Return the text of the `DredgeError` or `PeerError` that an action raises, or "" if it succeeds."""
    try:
        act()
    except DredgeError as error:
        return f"{type(error).__name__}: {error}"
    except Exception as error:
        if type(error).__name__ != "PeerError":
            raise
        return str(error)
    return ""


DEFAULTS: Final = "core-default.xml"
"""Hadoop's file of defaults, which Hadoop reads for each ORC file that Paimon writes."""


def _write_short_defaults(jars: list[str], target: Path) -> None:
    """Write Hadoop's defaults without descriptions, for the front of the class path: reading them is much faster."""
    for jar in map(Path, jars):
        if jar.suffix != ".jar" or not jar.is_file():
            continue
        with ZipFile(jar) as packed:
            if DEFAULTS not in packed.namelist():
                continue
            root = ElementTree.fromstring(packed.read(DEFAULTS))
        for of_property in root:
            of_property.tail = of_property.text = None
            for part in list(of_property):
                part.tail = None
                if part.tag == "description":
                    of_property.remove(part)
        ElementTree.ElementTree(root).write(target, encoding="utf-8", xml_declaration=True)
        return


def compiled(name: str, sources: list[Path], java: str, jars: str) -> Path:
    """Return the folder of compiled Java classes; compile them if a source or the class path changed.

    Raises PeerMissing without a compiler, or if the sources do not compile.
    """
    digest = hashlib.sha256(
        b"".join([*(source.read_bytes() for source in sources), DEFAULTS.encode(), jars.encode()])
    ).hexdigest()
    target = PAIMON_JAVA / f"classes-{digest[:16]}"
    if target.is_dir():
        return target
    PAIMON_JAVA.mkdir(parents=True, exist_ok=True)  # jars may come from elsewhere
    work = Path(tempfile.mkdtemp(prefix="classes-", dir=PAIMON_JAVA))
    javac, compilers = shutil.which("javac"), sorted(PAIMON_JAVA.glob("ecj-*.jar"))
    if javac is None and not compilers:
        raise peer_module().PeerMissing("no javac on PATH and no ecj-*.jar in .peers/paimon-java")
    command = [javac] if javac else [java, "-jar", str(compilers[-1]), "-17", "-proceedOnError"]
    done = subprocess.run(
        [*command, "-nowarn", "-d", str(work), "-cp", jars, *map(str, sources)],
        capture_output=True,
        text=True,
        check=False,
    )
    if not (work / f"{name}.class").is_file():
        raise peer_module().PeerMissing(f"{name}.java did not compile: {done.stderr[-2000:]}")
    _write_short_defaults(jars.split(os.pathsep), work / DEFAULTS)
    try:
        work.rename(target)
    except OSError:  # another test process was faster
        shutil.rmtree(work)
    return target


class JavaPaimon:
    """One JVM with the real Java Paimon. Commands of different lanes run in parallel, commands of one lane in order.

    Commands and answers are those of ../shared/peer. Raises PeerMissing without a jar, Java or a living JVM.
    """

    def __init__(
        self, version: str | None = None, *, hive_jars: list[str] | None = None, store_jars: Sequence[Path] = ()
    ) -> None:
        """Start the JVM.

        Args:
            version: version of Paimon; None for the version of `java_environment`.
            hive_jars: jars of Hive for the Hive catalog; None for a process without it.
            store_jars: jars with file systems of further stores.
        """
        java_environment()
        self._peer = peer_module()
        drivers = [
            str(jar) for pattern in ("sqlite-jdbc-*.jar", "postgresql-*.jar") for jar in PAIMON_JAVA.glob(pattern)
        ]
        drivers += [*(hive_jars or []), *map(str, store_jars)]
        java = self._peer.java_command()
        jars = os.pathsep.join([self._peer.classpath(version or self._peer.DEFAULT_VERSION), *drivers])
        ours = ["PaimonLanes.java", "PaimonCatalogs.java", "PaimonClustering.java"]
        ours += [] if hive_jars is None else ["PaimonHive.java"]
        sources = [Path(self._peer.SOURCE), *(Path(__file__).with_name(name) for name in ours)]
        classes = compiled("PaimonLanes", sources, java, jars)
        self._folder = tempfile.TemporaryDirectory(prefix="paimon-java-")
        self._process = subprocess.Popen(
            [
                *(java, "-Xmx1g", "-Duser.timezone=UTC", "-Dfile.encoding=UTF-8", *JAVA_OPTIONS.split()),
                f"-Djava.io.tmpdir={self._folder.name}",
                *("-cp", os.pathsep.join([str(classes), jars]), "PaimonLanes"),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            encoding="utf-8",
        )
        self._sending = threading.Lock()
        self._answers: defaultdict[int, queue.SimpleQueue[dict[str, Any] | None]] = defaultdict(queue.SimpleQueue)
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        try:
            for line in self._process.stdout:
                answer = json.loads(line)
                self._answers[answer.pop("lane")].put(answer)
        finally:  # whoever waits is told, also when the JVM prints something else
            for lane in list(self._answers.values()):
                lane.put(None)

    def call(self, op: str, *, lane: int = 0, **arguments: Any) -> dict[str, Any]:
        """Run one command, without arguments that are None; return the answer. Raises PeerError with Java's error."""
        command = {name: value for name, value in arguments.items() if value is not None}
        answers = self._answers[lane]
        assert self._process.stdin is not None
        with self._sending:
            self._process.stdin.write(json.dumps({**command, "op": op, "lane": lane}, default=str) + "\n")
            self._process.stdin.flush()
        answer = answers.get()
        if answer is None:
            answers.put(None)
            raise self._peer.PeerMissing(f"the JVM ended, or printed what is no answer (code {self._process.poll()})")
        if not answer.pop("ok"):
            raise self._peer.PeerError(answer)
        return answer

    def close(self) -> None:
        """End the JVM."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(timeout=120)
        self._listener.join()
        self._process.stdout.close()
        self._folder.cleanup()


class PyPaimonProcess:
    """One running pypaimon for a whole test session, because its import takes seconds."""

    name, python, driver = "pypaimon", PYPAIMON, "pypaimon_driver.py"

    def __init__(self) -> None:
        if not self.python.is_file():
            missing(f"no .peers/{self.name} (run `make peers`)")
        driver = Path(__file__).with_name(self.driver)
        environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
        self._process = subprocess.Popen(
            [str(self.python), "-P", str(driver)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )

    def call(self, **command: Any) -> dict[str, Any]:
        """Run one command and return its answer. Raises AssertionError with pypaimon's error."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None and stdout is not None
        stdin.write(json.dumps(command) + "\n")
        stdin.flush()
        for line in stdout:  # whatever the peer itself prints is passed over
            if line.startswith("PEER "):
                answer = dict(json.loads(line.removeprefix("PEER ")))
                assert answer["ok"], f"{self.name} failed on {command}: {answer.get('error')}"
                return answer
        raise AssertionError(f"{self.name} ended on {command}")

    def close(self) -> None:
        """End the process."""
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()
        self._process.wait(timeout=120)


class PyPaimonRustProcess(PyPaimonProcess):
    """One running pypaimon-rust (the Python package of paimon-rust)."""

    name, python, driver = "pypaimon-rust", PYPAIMON_RUST, "pypaimon_rust_driver.py"


class PyIcebergProcess(PyPaimonProcess):
    """One running pyiceberg, with DuckDB's Iceberg extension as a second reader."""

    name, python, driver = "pyiceberg", PYICEBERG, "pyiceberg_driver.py"


class IcebergReaders:
    """pyiceberg and DuckDB, which read the Iceberg metadata of tables of one warehouse.

    A table is named by the folder that has the subfolder `metadata`.
    """

    def __init__(self, process: PyIcebergProcess, scratch: Path) -> None:
        self._process = process
        self._scratch = scratch

    def describe(self, folder: Path | str) -> dict[str, Any]:
        """Return the identity, schemas, snapshots, refs and manifests of the newest metadata, as pyiceberg reads them."""
        return self._process.call(op="describe", table=str(folder))

    def entries(self, folder: Path | str, snapshot_id: int) -> list[dict[str, Any]]:
        """Return the entries of the manifests of a snapshot, deleted ones too."""
        return list(self._process.call(op="files", table=str(folder), snapshot_id=snapshot_id)["entries"])

    def read(
        self,
        folder: Path | str,
        *,
        snapshot_id: int | None = None,
        ref: str | None = None,
        condition: str | None = None,
        reader: str = "pyiceberg",
    ) -> pa.Table:
        """Return all rows.

        Args:
            folder: folder with the subfolder `metadata`.
            snapshot_id: snapshot of the table, or None for the newest one.
            ref: name of a tag instead of a snapshot, for pyiceberg.
            condition: filter in pyiceberg's language, or None.
            reader: "pyiceberg" or "duckdb".

        Raises:
            AssertionError: the reader failed.
        """
        out = self._scratch / "from_iceberg.arrow"
        arguments = {"snapshot_id": snapshot_id, "ref": ref, "filter": condition, "reader": reader}
        self._process.call(op="read", table=str(folder), out=str(out), **arguments)
        with pa.OSFile(str(out), "rb") as source:
            return pa.ipc.open_file(source).read_all()


class IcebergSpark(PyPaimonProcess):
    """One running Spark with Iceberg's runtime, the only reader here that applies deletion vectors of version 3."""

    name = "Iceberg on Spark"

    def __init__(self) -> None:
        """Start Spark.

        Raises:
            PeerMissing: the environment or Iceberg's jar is missing.
        """
        jars = sorted(ICEBERG_SPARK.glob("iceberg-spark-runtime-*.jar"))
        if not jars or not PAIMON_SPARK.is_file():
            raise peer_module().PeerMissing(
                "no Iceberg runtime or its Spark (run `scripts/peers.py --spark-connector`)"
            )
        self._folder = tempfile.TemporaryDirectory(prefix="iceberg-spark-")
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "PYSPARK", "SPARK"))}
        environment |= {"TZ": "UTC", "SPARK_SUBMIT_OPTS": JAVA_OPTIONS, "JAVA_HOME": find_java().home}
        driver = Path(__file__).with_name("iceberg_spark_driver.py")
        settings = map("=".join, INTERPRETED.items())
        self._process = subprocess.Popen(
            [str(PAIMON_SPARK), "-P", str(driver), str(jars[-1]), self._folder.name, *settings],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment,
            cwd=self._folder.name,
        )

    def read(self, folder: Path | str, **options: str) -> pa.Table:
        """Return all rows.

        Args:
            folder: folder with the subfolder `metadata`.
            options: options of Iceberg's reader, such as the snapshot.
        """
        answer = self.call(table=str(folder), options={key.replace("_", "-"): value for key, value in options.items()})
        return parquet.read_table(answer["file"])

    def close(self) -> None:
        """End Spark."""
        super().close()
        self._folder.cleanup()


class SparkConnectorError(RuntimeError):
    """Spark, or Paimon's connector, refused a statement."""


class SparkConnector:
    """Spark SQL with Paimon's own connector, in a process and an environment of its own.

    The connector needs another version of Spark than the one that the tests of `lsm_core.spark` use, and another class
    path. The Spark session of those tests is not touched.
    """

    def __init__(self, settings: dict[str, str] | None = None) -> None:
        """Start Spark.

        Args:
            settings: settings of Spark beside those of the tests.

        Raises:
            PeerMissing: the environment or the connector's jar is missing, or Spark does not start.
        """
        absent = peer_module().PeerMissing
        jars = sorted(PAIMON_JAVA.glob("paimon-spark-*.jar"))
        if not jars:
            raise absent("no paimon-spark-*.jar in .peers/paimon-java (run `scripts/peers.py --spark-connector`)")
        if not PAIMON_SPARK.is_file():
            raise absent("no .peers/paimon-spark (run `scripts/peers.py --spark-connector`)")
        self._folder = tempfile.TemporaryDirectory(prefix="paimon-spark-")
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "PYSPARK", "SPARK"))}
        environment |= {"TZ": "UTC", "SPARK_SUBMIT_OPTS": JAVA_OPTIONS, "JAVA_HOME": find_java().home}
        driver = Path(__file__).with_name("spark_connector_driver.py")
        self._process = subprocess.Popen(
            [
                str(PAIMON_SPARK),
                "-P",
                str(driver),
                str(jars[-1]),
                self._folder.name,
                *map("=".join, {**INTERPRETED, **(settings or {})}.items()),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            encoding="utf-8",
            env=environment,
            cwd=self._folder.name,
        )
        try:
            self._answer()
        except SparkConnectorError as error:
            raise absent(f"Spark does not start with {jars[-1].name}: {error}") from error

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        for line in self._process.stdout:  # Spark itself prints lines, too
            if line.startswith("PEER "):
                answer = dict(json.loads(line.removeprefix("PEER ")))
                if not answer["ok"]:
                    raise SparkConnectorError(f"{answer['class']}: {answer['error']}")
                return answer
        raise SparkConnectorError(f"the process of Spark ended (code {self._process.wait(timeout=60)})")

    def call(self, warehouse: Path | str, **command: Any) -> dict[str, Any]:
        """Run ``sql``, or read ``table`` with ``options``; return the columns and rows. Raises SparkConnectorError.

        Args:
            warehouse: the folder of the warehouse; "" for Spark's own catalog.
            command: the command, with ``catalog_options`` for the first command of a warehouse.
        """
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({**command, "warehouse": str(warehouse)}) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def close(self) -> None:
        """End Spark."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(timeout=120)
        self._process.stdout.close()
        self._folder.cleanup()


class PyPaimon:
    """pypaimon or pypaimon-rust on one warehouse; rows are exchanged as Arrow IPC files."""

    def __init__(
        self, process: PyPaimonProcess, warehouse: Path, scratch: Path, options: dict[str, str] | None = None
    ) -> None:
        self._process = process
        self.warehouse = warehouse
        self.scratch = scratch
        self.catalog_options = dict(options or {})

    def _call(self, **command: Any) -> dict[str, Any]:
        return self._process.call(warehouse=str(self.warehouse), catalog_options=self.catalog_options, **command)

    def _save(self, data: pa.Table) -> str:
        path = self.scratch / "to_peer.arrow"
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, data.schema) as writer:
            writer.write_table(data)
        return str(path)

    def read(self, table: str) -> pa.Table:
        """Return all rows of the table, read by the peer."""
        out = self.scratch / "from_peer.arrow"
        self._call(op="read", table=table, out=str(out))
        with pa.OSFile(str(out), "rb") as source:
            return pa.ipc.open_file(source).read_all()

    def create(
        self, table: str, data: pa.Table, primary_keys: list[str], partition_keys: list[str], options: dict[str, str]
    ) -> None:
        """Create a table with the schema of `data`; for pypaimon-rust, which takes no Arrow schema, use `sql`."""
        self._call(
            op="create",
            table=table,
            data=self._save(data),
            primary_keys=primary_keys,
            partition_keys=partition_keys,
            options=options,
        )

    def write(self, table: str, data: pa.Table) -> float:
        """Write and commit rows; return the seconds, without the time to read the Arrow file of the rows."""
        return float(self._call(op="write", table=table, data=self._save(data))["secs"])

    def sql(self, *statements: str) -> None:
        """Run statements one after the other (pypaimon-rust only; its catalog is `paimon`)."""
        self._call(op="sql", statements=list(statements))
