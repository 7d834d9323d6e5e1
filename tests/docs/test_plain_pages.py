"""Hand-written pages keep to plain words, and to the line length of the code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.pages import DOCS, PAGES, ROOT, without_code

LINE_LIMIT = 120
FIGURATIVE = re.compile(r"\b(tells|told|hears|heard|stands|goes|gone|anew|whoever|nobody)\b", re.IGNORECASE)
GENERATED = {DOCS / "cli.md", DOCS / "options.md"}
_INDENTED_FENCE = re.compile(r"^( +)```.*?^\1```\s*$", re.MULTILINE | re.DOTALL)
_QUOTED = re.compile(r"`[^`]*`|maintenance stands still")  # code, and the name of a finding

WRITTEN = [page for page in PAGES if page not in GENERATED]


@pytest.mark.parametrize("page", WRITTEN, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_has_short_lines_and_no_figurative_words(page: Path) -> None:
    text = _INDENTED_FENCE.sub("", without_code(page.read_text("utf-8")))
    lines = text.splitlines()
    # Tables cannot be wrapped, and a code span with blanks is kept on one line.
    long = [
        line for line in lines if len(line) > LINE_LIMIT and line[0] != "|" and not re.fullmatch(r"\* `[^`]*`", line)
    ]
    assert long == []
    assert [line for line in lines if FIGURATIVE.search(_QUOTED.sub("", line))] == []
