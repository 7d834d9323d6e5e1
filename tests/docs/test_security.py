"""The threat model names a test for each line, and each of these tests exists."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
_CELL = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")


def _lines() -> list[str]:
    text = (ROOT / "docs" / "security.md").read_text("utf-8")
    return [line for line in text.splitlines() if line.startswith("|") and not line.startswith(("|---", "| Threat"))]


def test_every_line_of_the_threat_model_names_one_test() -> None:
    lines = _lines()
    assert len(lines) > 25
    assert [line for line in lines if len(_CELL.findall(line.rsplit("|", 2)[1])) != 1] == []


def test_every_test_that_the_threat_model_names_exists() -> None:
    missing = []
    for path, name in _CELL.findall("\n".join(_lines())):
        file = ROOT / path
        tree = ast.parse(file.read_text("utf-8")) if file.is_file() else ast.Module([], [])
        if name not in {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}:
            missing.append(f"{path}::{name}")
    assert missing == []


def test_the_threat_model_speaks_of_all_that_can_be_attacked() -> None:
    text = (ROOT / "docs" / "security.md").read_text("utf-8").lower()
    assert [
        word for word in ("metadata", "deleting", "plans", "ledger", "policies", "web server") if word not in text
    ] == []
