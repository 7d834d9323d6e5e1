"""Policy files: YAML parsing with line numbers, precise errors, and the last valid state of a changed file."""

from __future__ import annotations

import difflib
import logging
import os
import re
import types
import typing
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import Any, Final

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from dredge.platform_core.policies.policy import Pause, Place, Policies, PolicyEntry, PolicyFile
from lsm_core.errors import InvalidOption
from lsm_core.json_text import parse_json

POLICIES_VARIABLE: Final = "DREDGE_POLICIES"
INLINE_SOURCE: Final = "defs.yaml"
"""Name of the document with the policies of a component's attributes, for messages."""
_LOG: Final = logging.getLogger(__name__)
_MOST_BYTES: Final = 4 * 1024 * 1024
_MOST_VALUES: Final = 200_000
"""Most values of a file, with each use of an alias counted, because few lines of YAML can expand beyond the memory."""
_DEEPEST: Final = 64
_MERGE: Final = "tag:yaml.org,2002:merge"


class _UniqueKeyLoader(yaml.SafeLoader):
    """YAML loader that refuses repeated keys.

    PyYAML's own loaders keep the last value of a repeated key, which could silently end a pause.
    """

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if key.tag != _MERGE and isinstance(key, yaml.ScalarNode):
                if key.value in seen:
                    raise yaml.constructor.ConstructorError(None, None, f"{key.value!r} occurs twice", key.start_mark)
                seen.add(key.value)
        mapping: dict[Any, Any] = super().construct_mapping(node, deep)
        return mapping


def read_policies(path: Path) -> Policies:
    """Read one policy file.

    Raises:
        InvalidOption: the file is missing, is no YAML, or has an unknown or invalid value; the message names file,
            line and keys.
    """
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
    """Parse the text of a policy file.

    Args:
        text: content of the file.
        source: name of the file, for messages.

    Raises:
        InvalidOption: the text is no YAML, or has an unknown or invalid value; the message names file, line and keys.
    """
    try:
        loader = _UniqueKeyLoader(text)
        node = loader.get_single_node()
        _number_lines(node)  # refuses a document that expands to too many values before it is constructed
        raw = loader.construct_document(node) if node is not None else None
        lines = _number_lines(node)  # again, now with the values that `<<` merged into entries
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark is not None else ""
        tab = "; tabs are no indentation" if error.problem and "'\\t'" in error.problem else ""
        raise InvalidOption(POLICIES_VARIABLE, source, f"YAML ({where}{error.problem}{tab})") from error
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise InvalidOption(POLICIES_VARIABLE, source, f"YAML ({' '.join(str(error).split())})") from error
    return _validate({} if raw is None else raw, source, lines)


def check_policies(values: Mapping[str, Any], source: str, under: Place = ()) -> Policies:
    """Return policies that are values of another document, such as the attributes of a component.

    Args:
        values: content in the form of a policy file.
        source: name of the document, for messages.
        under: keys of the document under which the policies are, for messages.

    Raises:
        InvalidOption: a value is unknown or invalid, or there are too many; the message names its keys.
    """
    try:
        lines = _list_places(values)
    except ValueError as error:
        raise InvalidOption(f"{source}: {'.'.join(map(str, under))}", "...", f"fewer values ({error})") from error
    return _validate(values, source, lines, under)


def _validate(raw: Any, source: str, lines: Mapping[Place, int], under: Place = ()) -> Policies:
    """Return the policies of a document.

    Args:
        raw: values of the document.
        source: name of the document, for messages.
        lines: line of each value, by the keys that lead to it; 0 for an unknown line.
        under: keys of the document under which the policies are, for messages.

    Raises:
        InvalidOption: a value is unknown or invalid; the message names its line and keys.
    """
    try:
        return Policies(PolicyFile.model_validate(raw), source, lines)
    except ValidationError as error:
        # Of several forms, report the closest one; report a misspelt key before the key that is missing because of it.
        first = max(error.errors(), key=lambda item: (len(item["loc"]), item["type"] == "extra_forbidden"))
        raise _describe_error(first, source, lines, under) from error


def _list_places(values: Any) -> dict[Place, int]:
    """Return the line 0 (unknown) of every value, by the keys and list indexes that lead to the value.

    Raises:
        ValueError: there are too many values, or they are nested too deeply.
    """
    lines: dict[Place, int] = {}
    pending: list[tuple[Place, Any]] = [((), values)]
    while pending:
        place, value = pending.pop()
        if len(lines) > _MOST_VALUES:
            raise ValueError(f"there are more than {_MOST_VALUES:,} values")
        if len(place) > _DEEPEST:
            raise ValueError(f"it is nested deeper than {_DEEPEST} levels")
        steps: Iterable[tuple[Any, Any]] = ()
        if isinstance(value, Mapping):
            steps = value.items()
        elif isinstance(value, list):
            steps = enumerate(value)
        for step, inner in steps:
            lines[*place, step] = 0
            pending.append(((*place, step), inner))
    return lines


def _number_lines(node: yaml.Node | None) -> dict[Place, int]:
    """Return the line (from 1) of every value, by the keys and list indexes that lead to the value."""
    lines: dict[Place, int] = {}
    pending: list[tuple[Place, yaml.Node]] = [] if node is None else [((), node)]
    visited = 0
    while pending:
        place, yaml_node = pending.pop()
        visited += 1
        if visited > _MOST_VALUES:
            raise ValueError(f"it expands to more than {_MOST_VALUES:,} values")
        if len(place) > _DEEPEST:
            raise ValueError(f"it is nested deeper than {_DEEPEST} levels")
        if isinstance(yaml_node, yaml.MappingNode):
            for key, value in yaml_node.value:
                if isinstance(key, yaml.ScalarNode) and key.tag != _MERGE:
                    lines[*place, key.value] = key.start_mark.line + 1
                    pending.append(((*place, key.value), value))
        elif isinstance(yaml_node, yaml.SequenceNode):
            for number, value in enumerate(yaml_node.value):
                lines[*place, number] = value.start_mark.line + 1
                pending.append(((*place, number), value))
    return lines


def _describe_error(error: ErrorDetails, source: str, lines: Mapping[Place, int], under: Place = ()) -> InvalidOption:
    """Return the error with a message of one line: file, line, keys, value and accepted values.

    Args:
        error: error of pydantic.
        source: path of the policy file.
        lines: result of `_number_lines` for the file.
        under: keys of the document under which the policies are, for the message.
    """
    location = tuple(error["loc"])
    place: Place = ()
    for step in location:
        if (*place, step) in lines or (step == location[-1] and step not in _FORMS):
            place = (*place, step)  # pydantic also names the alternatives that it tried
    line = next((lines[place[:end]] for end in range(len(place), 0, -1) if place[:end] in lines), 0)
    accepted = error["msg"].removeprefix("Value error, ")
    if error["type"] == "extra_forbidden":
        known = sorted(_known_at(location[:-1]))
        near = difflib.get_close_matches(str(location[-1]), known, n=1)
        accepted = f"did you mean {near[0]!r}?" if near else f"one of {', '.join(known)}"
        accepted = f"unknown here; {accepted}"
    if error["type"] == "model_type":
        accepted = "keys with values"  # pydantic would name the class
    if error["type"] in _NUMBER_ERRORS:
        accepted = _describe_number(error["type"], error.get("input"))
    if error["type"] in {"extra_forbidden", "invalid_key"} and str(location[-1])[:1].isdecimal():
        accepted = f"{accepted}; a comma begins a new entry, so decimals have a point: 0.05"
    where = f" (line {line})" if line else ""
    value = "(hidden)" if _may_be_secret(location, error.get("input")) else error.get("input")
    subject = ".".join(map(str, (*under, *place))) or "the file"
    return InvalidOption(f"{source}: {subject}{where}", value, accepted)


def _describe_number(kind: str, value: object) -> str:
    """Return the accepted values for a wrong number, with a hint on texts that look like numbers.

    Args:
        kind: type of pydantic's error.
        value: the wrong value.
    """
    accepted = "a number" if kind == "float_type" else "a whole number"
    if not isinstance(value, str):
        return accepted
    exponent = _EXPONENT.fullmatch(value.strip())
    if exponent is not None:
        digits, power = exponent[1], int(exponent[2])
        number = f"{digits if '.' in digits else f'{digits}.0'}e{power:+d}" if kind == "float_type" else "digits only"
        return f"{accepted}; YAML 1.1 reads {value.strip()} as text: write {number}"
    if re.fullmatch(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)", value.strip()):
        return f"{accepted}, without quotes"
    return accepted


def _may_be_secret(location: Place, value: object) -> bool:
    """Return whether an invalid value of the policy file may be the secret address of an alert channel.

    Error messages hide such a value. A person may write an address (such as a webhook URL) into the section ``alerts``
    by mistake, although the file should only name the environment variable with the address.

    Args:
        location: keys that lead to the value in the file.
        value: the invalid value.
    """
    if location[:1] != ("alerts",):
        return False
    plain_word = re.fullmatch(r"\w{1,64}", str(value)) is not None
    return "://" in str(value) or (location[1:2] == ("channels",) and not plain_word)


def _known_at(place: Place) -> set[str]:
    """Return the keys that a mapping of the policy file may have.

    Args:
        place: keys under which the mapping is nested in the file, outermost first.
    """
    kinds: list[Any] = [PolicyFile]
    for step in place:
        following: list[Any] = []
        for kind in kinds:
            if isinstance(kind, type) and issubclass(kind, BaseModel):
                if kind.__name__ == step:  # pydantic names the alternative that it tried
                    following.append(kind)
                field = next((item for name, item in kind.model_fields.items() if (item.alias or name) == step), None)
                following += [] if field is None else _kinds(field.annotation)
            elif typing.get_origin(kind) in (dict, list):
                following += _kinds(typing.get_args(kind)[-1])
        kinds = following or kinds
    models = [kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)]
    return {item.alias or name for model in models for name, item in model.model_fields.items()}


def _kinds(annotation: Any) -> Iterator[Any]:
    """Yield the types that an annotation allows."""
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        for member in typing.get_args(annotation):
            yield from _kinds(member)
    elif typing.get_origin(annotation) is typing.Annotated:
        yield from _kinds(typing.get_args(annotation)[0])
    else:
        yield annotation


_FORMS: Final = frozenset(
    {"[key]", "str", "int", "bool", "literal[False]", "OffPeak", "Pause", "SloRules", "CostRules"}
)


_NUMBER_ERRORS: Final = frozenset({"float_type", "int_type", "int_parsing", "int_from_float"})
"""Types of pydantic's errors about numbers."""
_EXPONENT: Final = re.compile(r"([+-]?[0-9]{1,30}(?:\.[0-9]{0,30})?)[eE]([+-]?[0-9]{1,6})")
_BUILT_IN: Final = Policies()


class PolicySource:
    """Policies of a file, read again whenever the file changes.

    While the file is invalid, its last valid content applies and `Policies.trouble` has the error. A process that never
    read a valid content pauses all maintenance, because the restrictions of the file are unknown.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._lock = Lock()
        self._state: tuple[int, ...] | None = None
        self._policies: Policies | None = None
        self._good: Policies | None = None

    def current(self) -> Policies:
        """Return the policies that apply now, or the built-in values without a file; never raise an error."""
        if not self._path:
            return _BUILT_IN
        with self._lock:
            state = self._state_of_file()
            if self._policies is None or state != self._state:
                self._policies, self._state = self._read(), state
            return self._policies

    def _state_of_file(self) -> tuple[int, ...]:
        try:
            status = os.stat(self._path)
        except OSError:
            return ()
        return (status.st_mtime_ns, status.st_size, status.st_ino, status.st_dev)

    def _read(self) -> Policies:
        path = Path(self._path)
        try:
            self._good = read_policies(path)
        except InvalidOption as error:
            _LOG.error("%s", error)
            if self._good is None:
                return _pause_everything(path.name, str(error))
            return replace(self._good, trouble=f"{error}; the last valid state of the file still applies")
        return self._good


def _pause_everything(source: str, error: str) -> Policies:
    """Return policies that pause all maintenance, for an invalid file of which this process read no valid content.

    Args:
        source: name of the file, for messages.
        error: error of the file.
    """
    pause = Pause(reason=f"the policy file cannot be read: {error}", retention=True)
    trouble = f"{error}; all maintenance is paused until the file is repaired"
    return Policies(PolicyFile(defaults=PolicyEntry(paused=pause)), source, trouble=trouble)


_sources: Final[dict[str, PolicySource]] = {}


def policy_source(path: str, inline: str = "") -> PolicySource:
    """Return the `PolicySource` of a file; the process has one for each file, which keeps the last valid content.

    Args:
        path: path of the file, or "" for the built-in values.
        inline: policies of a component's attributes as a JSON object, which replace the file; "" for none.

    Raises:
        InvalidOption: a value of the attributes is unknown or invalid; the message names its keys.
    """
    if inline:
        return _inline_source(inline)
    return _sources.setdefault(path, PolicySource(path))


class InlinePolicySource(PolicySource):
    """Policies of a component's attributes, which are valid and do not change while the process lives."""

    def __init__(self, policies: Policies) -> None:
        super().__init__("")
        self._inline = policies

    def current(self) -> Policies:
        """Return the policies."""
        return self._inline


@lru_cache(maxsize=64)
def _inline_source(text: str) -> InlinePolicySource:
    """Return the `PolicySource` of the policies in a component's attributes.

    Args:
        text: the policies as a JSON object in the form of a policy file.

    Raises:
        InvalidOption: a value is unknown or invalid; the message names its keys.
    """
    return InlinePolicySource(check_policies(parse_json(text), INLINE_SOURCE, ("policies",)))


def load_policies(environment: Mapping[str, str] | None = None) -> Policies:
    """Return the policies of the file that ``DREDGE_POLICIES`` names, or the built-in values if it is not set.

    Never raises an error: for an invalid file, its last valid content applies, or else all maintenance is paused.
    """
    return policy_source(policies_path(environment)).current()


def policies_path(environment: Mapping[str, str] | None = None) -> str:
    """Return the value of ``DREDGE_POLICIES``, or "" if it is not set."""
    return (os.environ if environment is None else environment).get(POLICIES_VARIABLE, "").strip()
