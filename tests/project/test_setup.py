"""`make setup` installs the lock by uv where uv is installed, else by pip, and both only files with a hash of the lock."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.docs.pages import ROOT

_PYTHON = """#!/bin/sh
echo "python $*" >> "$LOG"
if [ "$2" = venv ]; then mkdir -p "$3/bin"; cp "$0" "$3/bin/python"; fi
"""
_UV = """#!/bin/sh
echo "uv $*" >> "$LOG"
exit {code}
"""


@pytest.mark.parametrize("uv", ["missing", "works", "fails"])
def test_the_lock_is_installed_once_with_its_hashes(tmp_path: Path, uv: str) -> None:
    folder, tools = tmp_path / "a checkout", tmp_path / "tools"
    (folder / "scripts").mkdir(parents=True)
    tools.mkdir()
    shutil.copy(ROOT / "scripts" / "setup.sh", folder / "scripts")
    for name in ("requirements.lock", "pyproject.toml"):
        (folder / name).write_text("")
    for name in ("sh", "cat", "cksum", "cp", "mkdir", "rm"):
        (tools / name).symlink_to(str(shutil.which(name)))
    programs = {"python": _PYTHON} | ({} if uv == "missing" else {"uv": _UV.format(code=int(uv == "fails"))})
    for name, text in programs.items():
        (tools / name).write_text(text)
        (tools / name).chmod(0o755)
    environment = {"PATH": str(tools), "PYTHON": str(tools / "python"), "LOG": str(tmp_path / "log")}
    command = [os.fspath(tools / "sh"), "scripts/setup.sh"]
    answers = [
        subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True, text=True)
        for _ in range(2)
    ]
    installs = [line for line in (tmp_path / "log").read_text().splitlines() if "requirements.lock" in line]
    due = {"missing": ["python"], "works": ["uv"], "fails": ["uv", "python"]}[uv]
    assert [line.split()[0] for line in installs] == due  # the second call finds the environment current
    assert all(" --require-hashes " in line and " --no-deps " in line for line in installs)
    assert ("uv failed" in answers[0].stderr) is (uv == "fails")
    assert answers[0].stdout.endswith("setup: done\n")
    assert answers[1].stdout == ""
