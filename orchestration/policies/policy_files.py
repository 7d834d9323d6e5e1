"""Policy files: YAML with the line of every value, errors that name file, line and place, and the last good state of a file that is being edited."""

from __future__ import annotations

import difflib
import logging
import os
import types
import typing
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from threading import Lock
from typing import Any, Final

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from lsm_core.errors import InvalidOption
from orchestration.policies.policy import Pause, Place, Policies, PolicyEntry, PolicyFile

POLICIES_VARIABLE: Final = "DREDGE_POLICIES"
_LOG: Final = logging.getLogger(__name__)
_MOST_BYTES: Final = 4 * 1024 * 1024
_MOST_VALUES: Final = 200_000
"""Of a file, aliases counted each time: a few lines of YAML can stand for more than fits in memory."""
_DEEPEST: Final = 64
_MERGE: Final = "tag:yaml.org,2002:merge"


class _OnceLoader(yaml.SafeLoader):
    """Refuses a key that comes twice: YAML's last one would win, and a pause above it be lost without a word."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if key.tag != _MERGE and isinstance(key, yaml.ScalarNode):
                if key.value in seen:
                    raise yaml.constructor.ConstructorError(None, None, f"{key.value!r} is there twice", key.start_mark)
                seen.add(key.value)
        found: dict[Any, Any] = super().construct_mapping(node, deep)
        return found


def read_policies(path: Path) -> Policies:
    """Read one policy file. Raises InvalidOption naming file, line and place: it is missing, is no YAML, or says something unknown."""
    try:
        size = path.stat().st_size
        if not path.is_file():
            raise InvalidOption(POLICIES_VARIABLE, str(path), "a YAML file")
        if size > _MOST_BYTES:
            raise InvalidOption(
                POLICIES_VARIABLE, str(path), f"a file of at most {_MOST_BYTES // 1024**2} MiB ({size:,} bytes)"
            )
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise InvalidOption(POLICIES_VARIABLE, str(path), f"a readable YAML file ({error.strerror})") from error
    except UnicodeDecodeError as error:
        raise InvalidOption(POLICIES_VARIABLE, str(path), f"YAML ({error})") from error
    return parse_policies(text, path.name)


def parse_policies(text: str, source: str) -> Policies:
    """Read the text of a policy file that messages call ``source``. Raises InvalidOption as `read_policies` does."""
    try:
        loader = _OnceLoader(text)
        node = loader.get_single_node()
        _lines(node)  # refuses what stands for too much before anything is made of it
        raw = loader.construct_document(node) if node is not None else None
        lines = _lines(node)  # by now with what was merged into entries (<<)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark is not None else ""
        tab = "; tabs are no indentation" if error.problem and "'\\t'" in error.problem else ""
        raise InvalidOption(POLICIES_VARIABLE, source, f"YAML ({where}{error.problem}{tab})") from error
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise InvalidOption(POLICIES_VARIABLE, source, f"YAML ({' '.join(str(error).split())})") from error
    try:
        return Policies(PolicyFile.model_validate({} if raw is None else raw), source, lines)
    except ValidationError as error:
        # Of several forms, the one that nearly fits; what is misspelt before what is therefore missing.
        first = max(error.errors(), key=lambda item: (len(item["loc"]), item["type"] == "extra_forbidden"))
        raise _refusal(first, source, lines) from error


def _lines(node: yaml.Node | None) -> dict[Place, int]:
    """The line (1: the first) of every value by the keys and numbers that lead to it."""
    found: dict[Place, int] = {}
    waiting: list[tuple[Place, yaml.Node]] = [] if node is None else [((), node)]
    visited = 0
    while waiting:
        place, one = waiting.pop()
        visited += 1
        if visited > _MOST_VALUES:
            raise ValueError(f"it stands for more than {_MOST_VALUES:,} values")
        if len(place) > _DEEPEST:
            raise ValueError(f"it goes deeper than {_DEEPEST} levels")
        if isinstance(one, yaml.MappingNode):
            for key, value in one.value:
                if isinstance(key, yaml.ScalarNode) and key.tag != _MERGE:
                    found[*place, key.value] = key.start_mark.line + 1
                    waiting.append(((*place, key.value), value))
        elif isinstance(one, yaml.SequenceNode):
            for number, value in enumerate(one.value):
                found[*place, number] = value.start_mark.line + 1
                waiting.append(((*place, number), value))
    return found


def _refusal(error: ErrorDetails, source: str, lines: Mapping[Place, int]) -> InvalidOption:
    """What is wrong, in one line: file, line, place, value and what is accepted."""
    given = tuple(error["loc"])
    place: Place = ()
    for step in given:
        if (*place, step) in lines or (step == given[-1] and step not in _FORMS):
            place = (*place, step)  # pydantic also names the forms that it tried
    line = next((lines[place[:end]] for end in range(len(place), 0, -1) if place[:end] in lines), 0)
    accepted = error["msg"].removeprefix("Value error, ")
    if error["type"] == "extra_forbidden":
        known = sorted(_known_at(given[:-1]))
        near = difflib.get_close_matches(str(given[-1]), known, n=1)
        accepted = f"did you mean {near[0]!r}?" if near else f"one of {', '.join(known)}"
        accepted = f"unknown here; {accepted}"
    where = f" (line {line})" if line else ""
    return InvalidOption(f"{source}: {'.'.join(map(str, place)) or 'the file'}{where}", error.get("input"), accepted)


def _known_at(place: Place) -> set[str]:
    """The keys that the model at a place of the file takes."""
    kinds: list[Any] = [PolicyFile]
    for step in place:
        following: list[Any] = []
        for kind in kinds:
            if isinstance(kind, type) and issubclass(kind, BaseModel):
                if kind.__name__ == step:  # pydantic names the form that it tried
                    following.append(kind)
                field = next((item for name, item in kind.model_fields.items() if (item.alias or name) == step), None)
                following += [] if field is None else _kinds(field.annotation)
            elif typing.get_origin(kind) in (dict, list):
                following += _kinds(typing.get_args(kind)[-1])
        kinds = following or kinds
    models = [kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)]
    return {item.alias or name for model in models for name, item in model.model_fields.items()}


def _kinds(annotation: Any) -> Iterator[Any]:
    """The types that an annotation allows, one by one."""
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        for one in typing.get_args(annotation):
            yield from _kinds(one)
    elif typing.get_origin(annotation) is typing.Annotated:
        yield from _kinds(typing.get_args(annotation)[0])
    else:
        yield annotation


_FORMS: Final = frozenset({"[key]", "str", "int", "bool", "literal[False]", "OffPeak", "Pause"})


_BUILT_IN: Final = Policies()


class PolicySource:
    """The policies in force, read again whenever their file changed; while it is broken, its last good state counts and ``trouble`` says why.

    A process that never saw it whole lets maintenance rest: what the file would have forbidden is not known.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._lock = Lock()
        self._state: tuple[int, ...] | None = None
        self._found: Policies | None = None
        self._good: Policies | None = None

    def current(self) -> Policies:
        """Return what holds now; without a file every table has the built-in values. Never raises."""
        if not self._path:
            return _BUILT_IN
        with self._lock:
            state = self._state_of_file()
            if self._found is None or state != self._state:
                self._found, self._state = self._read(), state
            return self._found

    def _state_of_file(self) -> tuple[int, ...]:
        try:
            found = os.stat(self._path)
        except OSError:
            return ()
        return (found.st_mtime_ns, found.st_size, found.st_ino, found.st_dev)

    def _read(self) -> Policies:
        path = Path(self._path)
        try:
            self._good = read_policies(path)
        except InvalidOption as error:
            _LOG.error("%s", error)
            if self._good is None:
                return _resting(path.name, str(error))
            return replace(self._good, trouble=f"{error}; what the file said before still counts")
        return self._good


def _resting(source: str, error: str) -> Policies:
    """Policies of a file that this process never read: everything rests."""
    pause = Pause(reason=f"the policy file cannot be read: {error}", retention=True)
    trouble = f"{error}; maintenance rests until the file is repaired"
    return Policies(PolicyFile(defaults=PolicyEntry(paused=pause)), source, trouble=trouble)


_sources: Final[dict[str, PolicySource]] = {}


def policy_source(path: str) -> PolicySource:
    """Return the policies of a file ("": built-in values alone), one for the whole process, so that its last good state is known to all."""
    return _sources.setdefault(path, PolicySource(path))


def load_policies(environment: Mapping[str, str] | None = None) -> Policies:
    """Return the policies in force of the file that ``DREDGE_POLICIES`` names; without it every table has the built-in values.

    Never raises: see `PolicySource`.
    """
    return policy_source(policies_path(environment)).current()


def policies_path(environment: Mapping[str, str] | None = None) -> str:
    """Return what ``DREDGE_POLICIES`` says, "" where it says nothing."""
    return (os.environ if environment is None else environment).get(POLICIES_VARIABLE, "").strip()


__all__ = ["PolicySource", "load_policies", "parse_policies", "policies_path", "policy_source", "read_policies"]
