"""Code blocks of the pages: found, and run as a reader would, top to bottom.

The blocks of a page share one folder, one warehouse and one set of Python names, so a block may use what an earlier one of its page made.
`/data/warehouse` stands for the page's own warehouse, `HASH` for the hash that the last `dredge plan` printed. A comment on
the line above a block says what else a reader should know:

    <!-- output -->          the block is what the block before it printed (`...` stands for anything)
    <!-- raises: NAME -->    the block (or a command of it) ends in this error
    <!-- spark -->           the page's blocks use the session `spark`
    <!-- rest -->            the page's blocks use a REST catalog server, for which `http://catalog:10000` stands;
                            `thrift://metastore:9083` stands for a Hive metastore in the process of the test
    <!-- iceberg -->         the block is run by the Python of .peers/pyiceberg, in a process of its own
    <!-- new: PATH -->, <!-- edit: PATH -->, <!-- run -->    steps of a recipe, followed by test_contributing.py in a copy of the house
"""

from __future__ import annotations

import ast
import contextlib
import doctest
import importlib
import io
import json
import re
import shlex
import subprocess
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from bench.__main__ import BENCHES
from lsm_core.cli.app import run as dredge
from lsm_core.options import INLINE_VARIABLE
from tests.docs.pages import ROOT
from tests.support.peers import PYICEBERG, report_missing

_BLOCK = re.compile(
    r"(?:^ *<!-- (?P<mark>[^\n]*?) -->\n+)?^(?P<indent> *)```(?P<language>\S*)[^\n]*\n(?P<code>.*?)^(?P=indent)```\s*$",
    re.MULTILINE | re.DOTALL,
)
LANGUAGES = frozenset({"python", "sh", "yaml", "json", "text", "toml", "diff"})
_SPARK = "<!-- spark -->"
_REST = "<!-- rest -->"
_STEPS = ("new: ", "edit: ", "run")


@dataclass(frozen=True)
class Block:
    """Fenced code block: page, number of its first line of code, language, code, and the comment above it."""

    page: Path
    line: int
    language: str
    code: str
    mark: str

    @property
    def where(self) -> str:
        """ "docs/engine.md:12", for messages."""
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def blocks(page: Path) -> list[Block]:
    """Return the fenced code blocks of a page, in order."""
    text = page.read_text("utf-8")
    return [
        Block(
            page,
            text.count("\n", 0, match.start("code")) + 1,
            match["language"],
            "".join(line.removeprefix(match["indent"]) for line in match["code"].splitlines(keepends=True)),
            (match["mark"] or "").strip(),
        )
        for match in _BLOCK.finditer(text)
    ]


def needs_spark(page: Path) -> bool:
    """Return whether the page's blocks use a Spark session."""
    return _SPARK in page.read_text("utf-8")


def needs_rest(page: Path) -> bool:
    """Return whether the blocks of a page use a REST catalog server."""
    return _REST in page.read_text("utf-8")


class Reader:
    """Runner of the blocks of one page in ``folder``."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, names: dict[str, Any] | None = None) -> None:
        self._warehouse = str(folder / "warehouse")
        self._patch = monkeypatch
        self._names: dict[str, Any] = {"__name__": "page", **(names or {})}
        self._printed: str | None = ""
        self._hash = "HASH"
        monkeypatch.chdir(folder)
        monkeypatch.delenv(INLINE_VARIABLE, raising=False)  # what a page shows is what its readers get

    def run(self, block: Block) -> None:
        """Run or parse one block. Raises AssertionError with the location of the block, or the error of the code."""
        assert block.language in LANGUAGES, f"{block.where}: a block without a language (one of {sorted(LANGUAGES)})"
        code = block.code.replace("/data/warehouse", self._warehouse)
        if block.mark.startswith(_STEPS):
            return
        if block.mark == "output":
            self._compare(block)
        elif block.mark == "iceberg":
            self._in_pyiceberg(block, code)
        elif block.language == "python":
            self._python(block, code)
        elif block.language == "sh":
            self._shell(block, code)
        elif block.language == "yaml":
            _read_yaml(code)
        elif block.language == "json":
            json.loads(code)
        elif block.language == "diff":
            raise AssertionError(f"{block.where}: a change without the file that it is for")
        elif block.language == "toml":
            tomllib.loads(code)

    def _compare(self, block: Block) -> None:
        if self._printed is None:
            return  # the peer that prints it is missing
        flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
        same = doctest.OutputChecker().check_output(block.code, self._printed, flags)
        assert same, f"{block.where}: the page says\n{block.code}\nand this was printed:\n{self._printed}"

    def _python(self, block: Block, code: str) -> None:
        # The lines of the page above the block are blank lines here, so that a traceback names the page's line.
        tree = ast.parse("\n" * (block.line - 1) + code, str(block.page))
        with contextlib.redirect_stdout(io.StringIO()) as printed, _expected(block):
            exec(compile(tree, str(block.page), "exec"), self._names)
        self._printed = printed.getvalue()

    def _in_pyiceberg(self, block: Block, code: str) -> None:
        if not PYICEBERG.is_file():
            report_missing("no .peers/pyiceberg (run `make peers`)")
            self._printed = None
            return
        done = subprocess.run([str(PYICEBERG), "-P", "-c", code], capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{block.where}: {done.stderr[-2000:]}"
        self._printed = done.stdout

    def _shell(self, block: Block, code: str) -> None:
        self._printed = ""
        failing = block.mark.removeprefix("raises: ") if block.mark.startswith("raises: ") else None
        for line in code.replace("\\\n", " ").splitlines():
            words = [self._hash if word == "HASH" else word for word in shlex.split(line, comments=True)]
            if words:
                self._command(block, words, failing)

    def _command(self, block: Block, words: list[str], failing: str | None) -> None:
        match words:
            case ["export", *pairs]:
                for pair in pairs:
                    self._patch.setenv(*pair.split("=", 1))
            case ["dredge", "demo", *options]:
                code, printed = _captured(["demo", "--help"])
                assert code == 0
                assert [option for option in options if option.startswith("--") and option not in printed] == []
            case ["dredge", *arguments]:
                code, printed = _captured(arguments)
                assert (code != 0) == (failing is not None), f"{block.where}: {' '.join(words)}\n{printed}"
                assert failing is None or failing in printed, f"{block.where}: {printed}"
                self._printed = f"{self._printed or ''}{printed}"
                found = re.search(r"\bplan ([0-9a-f]{32})\b", printed)
                self._hash = found[1] if found else self._hash
            case _:
                _exists(block, words)


def _expected(block: Block) -> contextlib.AbstractContextManager[Any]:
    """Return a context that expects the error that the comment of a Python block names, or no error."""
    if not block.mark.startswith("raises: "):
        return contextlib.nullcontext()
    from lsm_core import errors

    return pytest.raises(getattr(errors, block.mark.removeprefix("raises: ")))


def _captured(arguments: list[str]) -> tuple[int, str]:
    """Run a `dredge` command; return the exit code and the output."""
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(out):
        code = dredge(arguments)
    return code, out.getvalue()


def _exists(block: Block, words: list[str]) -> None:
    """Assert that the targets, files and options of a command exist, for commands that this test does not run."""
    match words:
        case ["make", *targets]:
            known = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
            assert set(targets) <= known, block.where
        case ["python" | ".venv/bin/python", "-m", "bench", *names]:
            assert {name for name in names if not name.startswith("-")} <= set(BENCHES), block.where
        case ["python" | ".venv/bin/python", "-m", "pytest", path, *_]:
            assert (ROOT / path.split("::", 1)[0]).exists(), block.where
        case [("sh" | "python" | ".venv/bin/python"), script, *_] if "/" in script:
            assert (ROOT / script).is_file(), block.where
        case ["dagster", "dev", "-w", workspace]:
            assert (ROOT / workspace).is_file(), block.where
        case ["dagster-webserver", *options]:
            from dagster_webserver.cli import dagster_webserver

            known = {option for parameter in dagster_webserver.params for option in parameter.opts}
            assert {option for option in options if option.startswith("-")} <= known, block.where
        case ["dg", "scaffold", "defs", component, _]:
            module, _, name = component.rpartition(".")
            assert hasattr(importlib.import_module(module), name), block.where
        case [".", ".venv/bin/activate"]:
            pass  # of the environment that this test runs in
        case ["cp", source, _]:
            assert (ROOT / source).is_file(), block.where
        case ["pip", "install", what]:
            extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
            named = re.search(r"\[([\w, ]+)\]$", what)
            assert not named or {name.strip() for name in named[1].split(",")} <= set(extras), block.where
        case _:
            raise AssertionError(f"{block.where}: this test cannot tell whether `{' '.join(words)}` works")


def _read_yaml(code: str) -> None:
    """Validate a policy file with the platform's reader; parse all other YAML."""
    from dredge.platform_core.policies.policy_files import read_policies

    document = yaml.safe_load(code)
    keys = ("defaults", "databases", "tables", "budget")  # a job's configuration may have the key `tables`, as text
    if isinstance(document, dict) and any(isinstance(document.get(key), dict) for key in keys):
        path = Path("policies.yaml")
        path.write_text(code, "utf-8")
        read_policies(path)
