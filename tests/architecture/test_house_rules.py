"""Rules of the house that no linter knows: what folders say of themselves, what may be committed, what names point to."""

from __future__ import annotations

import ast
import itertools
import re
from pathlib import Path

from scripts.rooms import readmes
from tests.docs.pages import tracked

ROOT = Path(__file__).resolve().parent.parent.parent
PACKAGES = ("lsm_core", "dredge", "platform_core", "assets", "checks", "orchestration")


def test_every_folder_says_what_it_is_for() -> None:
    silent = []
    for package in PACKAGES:
        for folder in {path.parent for path in (ROOT / package).rglob("*.py")}:
            init = folder / "__init__.py"
            if not init.is_file() or not init.read_text().lstrip().startswith('"""'):
                silent.append(folder.relative_to(ROOT).as_posix())
    assert silent == ["assets/demo/reference"] or silent == []


def test_every_room_has_a_readme_that_says_where_to_begin_and_where_its_tests_are() -> None:
    rooms = readmes()
    assert {path.parent.relative_to(ROOT).as_posix() for path in rooms} >= {
        "lsm_core/merge",
        "assets",
        "orchestration/ops",
    }
    texts = {path: path.read_text("utf-8") for path in rooms}
    assert [str(path) for path, text in texts.items() if "Its tests are in `tests/" not in text] == []
    assert [str(path) for path, text in texts.items() if not 3 <= len(re.findall(r"\.\s", text)) <= 12] == []


def test_nothing_committed_names_a_machine_or_a_registry() -> None:
    # Assembled from parts, so that this file does not find itself.
    roots = "|".join(("wo" + "rk", "ro" + "ot", "ho" + "me/[a-z]", "fa" + "rm"))
    hosts = "|".join(
        (
            "pypi[.]" + "org",
            "pythonhosted[.]" + "org",
            "repo1?[.]" + "maven",
            "registry[.]" + "npmjs",
            "deb[.]" + "debian",
        )
    )
    pattern = re.compile(rf"(^|[^A-Za-z0-9_.$}}])/({roots})/|({hosts})")
    found = []
    for path in tracked():
        if path.suffix in {".gz", ".png", ".svg"} or path.name == "LICENSE":
            continue
        text = path.read_text(errors="replace")
        found += [
            f"{path.relative_to(ROOT)}:{text[: m.start()].count(chr(10)) + 1}: {m.group()}"
            for m in pattern.finditer(text)
        ]
    assert found == []


def test_no_generated_or_binary_things_aretracked() -> None:
    bad = [p.name for p in tracked() if p.suffix in {".whl", ".jar", ".parquet", ".class"} or p.name == "uv.lock"]
    assert bad == []


def test_every_term_of_where_md_points_to_a_file() -> None:
    text = (ROOT / "docs" / "where.md").read_text()
    entries = re.findall(r"^\| ([^|]+) \| (`[^|]+`) \|$", text, flags=re.MULTILINE)
    assert len(entries) == len(re.findall(r"^\| ", text, flags=re.MULTILINE)) - 1 >= 40
    places = [(term, place) for term, cell in entries for place in re.findall(r"`([^`]+)`", cell)]
    assert [f"{term} -> {place}" for term, place in places if not (ROOT / place).exists()] == []
    terms = [term for term, _ in entries]
    assert sorted({term for term in terms if terms.count(term) > 1}) == []


def test_every_package_names_an_existing_module_to_begin_with() -> None:
    missing, named = [], 0
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("__init__.py")):
            start = (ast.get_docstring(ast.parse(path.read_text())) or "").partition("Begin with")[2]
            for name in re.findall(r"`+([a-z_]+)`+", start):
                named += 1
                if not ((path.parent / name).is_dir() or (path.parent / f"{name}.py").is_file()):
                    missing.append(f"{path.relative_to(ROOT)}: {name}")
    assert missing == []
    assert named >= 30


_OWN_JSON = {  # text that this process has just written itself, or that the repository holds
    "lsm_core/cli/render.py",
    "lsm_core/cli/verbs/maintain.py",
    "lsm_core/cli/verbs/many_tables.py",
    "lsm_core/cli/verbs/sql.py",
    "lsm_core/cli/verbs/tag.py",
    "platform_core/pipes_worker.py",
    "assets/demo/marts.py",
    "assets/demo/expected_decisions.py",
    "assets/demo/reference/demo_reference.py",
    "assets/demo/checksums.py",
}


def test_untrusted_json_has_one_reader() -> None:
    users = set()
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            text = path.read_text()
            if "json" not in text:
                continue
            for node in ast.walk(ast.parse(text)):
                called = isinstance(node, ast.Attribute) and node.attr in {"load", "loads"}
                if called and isinstance(node.value, ast.Name) and node.value.id == "json":
                    users.add(path.relative_to(ROOT).as_posix())
                if isinstance(node, ast.ImportFrom) and node.module == "json":
                    users.add(path.relative_to(ROOT).as_posix())
    assert users == _OWN_JSON


_QUOTED_PART = re.compile(r"\bdredge [a-z]+(-[a-z]+)*( [a-z]+)? $| --(partition|tag|table|database)[ =]$")
_PLAIN_VALUES = frozenset({"plan.hash", "plan", "act"})
"""Values that never hold a character that a shell reads: hashes of plans and names of verbs."""


def test_commands_in_messages_quote_names() -> None:
    unquoted = []
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            tree = ast.parse(path.read_text())
            parts = [
                (str(text.value), value)
                for node in ast.walk(tree)
                if isinstance(node, ast.JoinedStr)
                for text, value in itertools.pairwise(node.values)
                if isinstance(text, ast.Constant) and isinstance(value, ast.FormattedValue)
            ]
            parts = [(text, value) for text, value in parts if _QUOTED_PART.search(text)]
            if not parts:
                continue  # formatting every assignment of a module takes most of the time
            quoted = {
                target.id
                for node in ast.walk(tree)
                if isinstance(node, ast.Assign) and "quote(" in ast.unparse(node.value)
                for target in ast.walk(ast.Tuple(node.targets))
                if isinstance(target, ast.Name)
            }
            for text, value in parts:
                source = ast.unparse(value.value)
                if not ("quote(" in source or source in quoted or source in _PLAIN_VALUES):
                    unquoted.append(f"{path.relative_to(ROOT)}:{value.lineno}: {text}{{{source}}}")
    assert unquoted == []
