"""What code and pages cite ("format.md 4.3") is there: the page, and the section."""

from __future__ import annotations

import re
from pathlib import Path

from tests.docs.pages import DOCS, PAGES, ROOT, sections, tracked

_TEXT = {".py", ".md", ".toml", ".yaml", ".yml", ".sh", ".java", ""}
_NUMBER = r"\d+b?(?:\.\d+b?)?"
_CITATION = re.compile(
    rf"(?P<path>[\w./-]*[\w-]+\.md(?![\w(]))(?:[`']*,? (?:notes? |sections? )?(?P<numbers>{_NUMBER}(?:(?:, | and ){_NUMBER})*)(?![\w%]))?"
)


def _page(path: str, citing: Path) -> Path | None:
    """The file that is meant: beside the citing one, from the top of the project, or a page of docs/."""
    places = (citing.parent / path, ROOT / path, DOCS / path)
    return next((place for place in places if place.is_file()), None)


def _citations() -> list[tuple[str, str, Path | None, list[str]]]:
    """Every citation: where it stands, its text, the page or None, and the section numbers it names."""
    found = []
    for file in tracked():
        if file.suffix not in _TEXT or file.name == "LICENSE" or file.is_relative_to(ROOT / "tests" / "data"):
            continue  # test data are copies, word for word
        if file.name == "test_site.py":
            continue  # its links lead nowhere on purpose
        text = file.read_text("utf-8")
        if ".md" not in text:
            continue
        for match in _CITATION.finditer(text):
            if match["path"].startswith("shared/"):
                continue  # a test that compares a copy with its source, where that lies beside the clone
            where = f"{file.relative_to(ROOT)}:{text.count(chr(10), 0, match.start()) + 1}"
            numbers = re.findall(_NUMBER, match["numbers"] or "")
            found.append((where, match[0], _page(match["path"], file), numbers))
    return found


def test_every_citation_names_a_page_and_a_section_that_exist() -> None:
    citations = _citations()
    known = {page: sections(page) for _, _, page, _ in citations if page is not None}
    wrong = [
        f"{where}: {text}"
        for where, text, page, numbers in citations
        if page is None or any(number not in known[page] for number in numbers)
    ]
    assert wrong == [], "\n".join(wrong)


def test_the_citations_of_the_code_are_found() -> None:
    """The pattern above still sees them: the format is cited all over the rooms that read and write it."""
    cited = {number for _, text, page, numbers in _citations() if page == DOCS / "format.md" for number in numbers}
    assert {"4.3", "6", "7", "8.2", "9", "11.2", "14.3", "17"} <= cited


def test_every_file_that_a_page_names_is_there() -> None:
    """Paths of the project in code spans; those that a recipe makes anew are not there yet."""
    named = re.compile(r"`((?:lsm_core|platform_core|orchestration|assets|checks|tests|scripts|bench|docs)/[\w./-]+)`")
    missing = []
    for page in PAGES:
        text = page.read_text("utf-8")
        made = {Path(place) for place in re.findall(r"<!-- new: (\S+) -->", text)}
        missing += [
            f"{page.name}: {place}"
            for place in named.findall(text)
            if not (ROOT / place).exists() and Path(place) not in made
        ]
    assert missing == []
