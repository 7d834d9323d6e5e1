"""Vectors as pytest parameters: one case each, id `<file stem>-<case id>`, from the folder that `DREDGE_VECTORS` names."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.data import vectors_dir

Case = dict[str, Any]


def cases(stem: str) -> list[Any]:
    """All cases of `<stem>.json`, whose first entry describes the fields; none where the folder lacks the file."""
    path = vectors_dir() / f"{stem}.json"
    if not path.is_file():
        return []
    found = [case for case in json.loads(path.read_text()) if "id" in case]
    return [pytest.param(case, id=f"{stem}-{case['id']}") for case in found]


def not_yet(feature: str) -> None:
    """Leave this case, naming what Dredge does not do yet."""
    pytest.skip(f"not supported yet: {feature}")
