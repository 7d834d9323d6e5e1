"""Command line for tests: runs verbs on one warehouse with a fixed clock and captures their output."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from lsm_core.cli.app import run
from tests.maintenance.tables import HOUR, NOW


@dataclass
class Answer:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


class Shell:
    """Runner of verbs on one warehouse with a fixed clock."""

    def __init__(self, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.place, self.capsys, self.clock = place, capsys, NOW + 2 * HOUR

    def __call__(self, verb: str, *arguments: str) -> Answer:
        self.capsys.readouterr()
        clock = [] if verb == "tables" else ["--clock", f"fixed:{self.clock}"]
        code = run([verb, *arguments, "-w", str(self.place), *clock])
        captured = self.capsys.readouterr()
        return Answer(code, captured.out, captured.err)
