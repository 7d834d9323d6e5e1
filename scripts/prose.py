"""Counts of prose defects in code: vague names, riddle words, long sentences and lines, docstrings without sections.

`python scripts/prose.py` prints the counts of this project; further folders are counted beside it. `--check` fails if a
count is above its limit (`LIMITS`), `--list NAME` prints the places of one count, `--draw N` prints random docstrings.
"""

from __future__ import annotations

import argparse
import ast
import random
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("lsm_core", "dredge", "platform_core", "assets", "checks", "orchestration")
FOREIGN = ROOT / "assets" / "demo" / "reference"
"""The demo's reference answers, a copy of a program that is kept elsewhere."""

LINE_LIMIT = 120
SENTENCE_LIMIT = 25
SEED = 20261124

# fmt: off
VAGUE_NAMES = frozenset({
    "told", "tells", "found", "gone", "went", "gets", "given", "asked", "asks", "one", "ones", "another", "joined", "typed", "checked",
    "there", "rest", "such", "heard", "hears", "said", "says", "stands", "lies", "goes", "anew", "whoever", "nobody", "it", "that", "this",
    "these", "those", "both", "what", "looked", "taken",
})
"""Participles, pronouns and riddles that say nothing about a value."""

RIDDLE_WORDS = frozenset({
    "what", "whatever", "whoever", "whatsoever", "such", "there", "tells", "tell", "told", "hears", "heard", "goes", "gone", "stands",
    "stand", "lies", "anew", "nobody",
})
"""Words that a noun or a common verb should replace."""
# fmt: on

LIMITS = {"vague names": 30, "'what' per 1,000 words": 1.5, "lines over 120": 0, "sections %": 40.0}
"""Limits of this project; that of sections is a minimum."""

_SECTION = re.compile(
    r"^\s*(Args|Arguments|Parameters|Returns|Raises|Yields|Attributes)\s*:?\s*$|:param |:return", re.MULTILINE
)
_WORD = re.compile(r"[A-Za-z][A-Za-z'-]*")
_CODE = re.compile(r"```.*?```|``[^`]*``|`[^`]*`", re.DOTALL)


# Counts whose places `--list` prints, with the field that holds them.
LISTS: Final = {
    "vague names": "names",
    "'what' per 1,000 words": "whats",
    "riddle words per 1,000": "riddles",
    "lines over 120": "long_lines",
    "sentences over 25 words %": "long_sentences",
    "sections %": "without_sections",
}


@dataclass
class Counts:
    """Counts over the Python files of some folders.

    Attributes:
        files: number of files.
        lines: number of lines of all files.
        names: places that bind a vague name, as `path:line name`.
        long_lines: places of lines over the limit.
        words: words of all docstrings, without code and quotations.
        whats: places of docstrings with the word "what", one entry per occurrence.
        riddles: places of all riddle words, as `path:line word`.
        sentences: number of words of each sentence of the docstrings.
        long_sentences: places and texts of the sentences over the limit.
        public: number of public functions and methods with parameters.
        with_sections: number of public functions and methods whose docstring has sections.
        without_sections: places and names of public functions and methods without sections.
        docstrings: every docstring with its place.
    """

    files: int = 0
    lines: int = 0
    names: list[str] = field(default_factory=list)
    long_lines: list[str] = field(default_factory=list)
    words: int = 0
    whats: list[str] = field(default_factory=list)
    riddles: list[str] = field(default_factory=list)
    sentences: list[int] = field(default_factory=list)
    long_sentences: list[str] = field(default_factory=list)
    public: int = 0
    with_sections: int = 0
    without_sections: list[str] = field(default_factory=list)
    docstrings: list[tuple[str, str]] = field(default_factory=list)

    def figures(self) -> dict[str, float]:
        """Return the figures of the table by name."""
        thousand = max(1, self.words) / 1000
        return {
            "files": self.files,
            "lines": self.lines,
            "vague names": len(self.names),
            "'what' per 1,000 words": round(len(self.whats) / thousand, 1),
            "riddle words per 1,000": round(len(self.riddles) / thousand, 1),
            "lines over 120": len(self.long_lines),
            "sentences over 25 words %": round(100 * len(self.long_sentences) / max(1, len(self.sentences)), 1),
            "words per sentence": round(sum(self.sentences) / max(1, len(self.sentences)), 1),
            "public functions": self.public,
            "sections %": round(100 * self.with_sections / max(1, self.public), 1),
        }


def count(folders: list[Path]) -> Counts:
    """Count over all Python files below some folders."""
    counts = Counts()
    for folder in folders:
        for path in sorted(folder.rglob("*.py")):
            if path.parent != FOREIGN:
                _count_file(path, counts)
    return counts


def _count_file(path: Path, counts: Counts) -> None:
    text = path.read_text(encoding="utf-8")
    place = str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else str(path)
    lines = text.splitlines()
    counts.files += 1
    counts.lines += len(lines)
    counts.long_lines += [f"{place}:{number}" for number, line in enumerate(lines, 1) if len(line) > LINE_LIMIT]
    tree = ast.parse(text)
    counts.names += [
        f"{place}:{line} {name}" for name, line in bound_names(tree) if name.lstrip("_").lower() in VAGUE_NAMES
    ]
    for node, public in _documented(tree):
        docstring = ast.get_docstring(node)
        line = getattr(node, "lineno", 1)
        if docstring:
            _count_words(docstring, f"{place}:{line}", counts)
        if public and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and _takes_or_returns(node):
            counts.public += 1
            if docstring and _SECTION.search(docstring):
                counts.with_sections += 1
            else:
                counts.without_sections.append(f"{place}:{line} {node.name}")


def _count_words(docstring: str, place: str, counts: Counts) -> None:
    counts.docstrings.append((place, docstring))
    prose = _CODE.sub("code", docstring)
    words = [word.lower() for word in _WORD.findall(prose)]
    counts.words += len(words)
    counts.whats += [place] * words.count("what")
    counts.riddles += [f"{place} {word}" for word in words if word in RIDDLE_WORDS]
    for block in re.split(r"\n\s*\n|\n\s*[-*] |\n\s*\w+:\s", prose):
        for sentence in re.split(r"(?<=[.!?;:])\s+", " ".join(block.split())):
            length = len(_WORD.findall(sentence))
            if length:
                counts.sentences.append(length)
            if length > SENTENCE_LIMIT:
                counts.long_sentences.append(f"{place} {sentence}")


def _documented(tree: ast.Module) -> Iterator[tuple[ast.AST, bool]]:
    """Yield the module and every class and function in it, with whether it is public."""
    yield tree, True

    def walk(body: list[ast.stmt], *, public: bool) -> Iterator[tuple[ast.AST, bool]]:
        for node in body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                visible = public and not node.name.startswith("_")
                yield node, visible
                yield from walk(node.body, public=visible and isinstance(node, ast.ClassDef))
            elif isinstance(node, ast.If | ast.Try | ast.With):
                yield from walk(node.body, public=public)

    yield from walk(tree.body, public=True)


def _takes_or_returns(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Return whether a function has parameters besides self and cls."""
    arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
    return any(argument.arg not in {"self", "cls"} for argument in arguments)


def bound_names(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Yield every name that code binds (variables, parameters, functions, classes, fields) with its line."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id, node.lineno
        elif isinstance(node, ast.arg):
            yield node.arg, node.lineno
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name, node.lineno
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr, node.lineno


def broken_limits(figures: dict[str, float]) -> list[str]:
    """Return a sentence for each figure beyond its limit."""
    return [
        f"prose: {name} is {figures[name]}, the limit is {limit}; "
        f"`python scripts/prose.py --list '{name}'` names the places"
        for name, limit in LIMITS.items()
        if (figures[name] < limit if name == "sections %" else figures[name] > limit)
    ]


def main() -> int:
    """Print the table, a list, random docstrings, or the figures beyond their limits."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", nargs="*", type=Path, help="folders that are counted beside this project")
    parser.add_argument("--check", action="store_true", help="fail where a count is beyond its limit")
    parser.add_argument("--list", metavar="NAME", choices=list(LISTS), help="print the places of one count")
    parser.add_argument("--draw", type=int, metavar="N", help="print N random docstrings")
    parser.add_argument("--rooms", action="store_true", help="count each folder of the packages separately")
    choices = parser.parse_args()
    own = count([ROOT / package for package in PACKAGES])
    if choices.check:
        problems = broken_limits(own.figures())
        print("\n".join(problems), file=sys.stderr)
        return 1 if problems else 0
    if choices.list:
        print("\n".join(getattr(own, LISTS[choices.list])))
        return 0
    if choices.draw:
        for place, docstring in random.Random(SEED).sample(own.docstrings, choices.draw):
            print(f"{place}\n{docstring}\n")
        return 0
    columns = {"dredge": own}
    if choices.rooms:
        columns |= {
            str(path.relative_to(ROOT)): count([path])
            for package in PACKAGES
            for path in sorted((ROOT / package).iterdir())
            if path.is_dir() and path.name != "__pycache__"
        }
    columns |= {path.name: count([path]) for path in choices.folders}
    print_table({name: counts.figures() for name, counts in columns.items()}, turned=choices.rooms)
    return 0


def print_table(columns: dict[str, dict[str, float]], *, turned: bool) -> None:
    """Print figures by column, or by row where there are many columns."""
    names = list(next(iter(columns.values())))
    if turned:
        print(" | ".join(["room".ljust(30), *names]))
        for column, figures in columns.items():
            print(" | ".join([column.ljust(30), *(f"{figures[name]:>{len(name)},}" for name in names)]))
        return
    width = max(14, *(len(name) + 2 for name in columns))
    print("".ljust(28) + "".join(column.rjust(width) for column in columns))
    for name in names:
        print(name.ljust(28) + "".join(f"{figures[name]:,}".rjust(width) for figures in columns.values()))


if __name__ == "__main__":
    sys.exit(main())
