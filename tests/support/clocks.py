"""Clocks of single modules in tests."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable
from types import SimpleNamespace

import pytest


def replace_sleep(monkeypatch: pytest.MonkeyPatch, module: str, sleep: Callable[[float], object]) -> None:
    """Replace `time.sleep` for one module; threads of other modules, which outlive their tests, sleep as before.

    Args:
        monkeypatch: takes the replacement back.
        module: name of the module; it has `import time`.
        sleep: called instead of `time.sleep`, with seconds.
    """
    monkeypatch.setattr(importlib.import_module(module), "time", SimpleNamespace(**{**vars(time), "sleep": sleep}))
