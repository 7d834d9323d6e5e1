"""What a user gets wrong is one clear error that names the thing, and nothing comes of it; test_connect.py asks the same of a server."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.spark.bad_inputs import SAID, refused

pytestmark = [pytest.mark.spark, pytest.mark.soak]  # `make test` asks through Connect, which runs the same code


def test_what_is_wrong_is_said_in_one_error_and_nothing_comes_of_it(spark: Any, tmp_path: Path) -> None:
    refusal = refused(spark, tmp_path)
    assert refusal.pop("left") == ""
    assert [(name, text) for name, text in refusal.items() if not re.search(SAID[name], text, re.DOTALL)] == []
    assert set(refusal) == set(SAID)
    own = [text for name, text in refusal.items() if SAID[name].startswith("^")]
    assert [text for text in own if "\n" in text or "org.apache" in text] == []
