"""The policy file: YAML with ``defaults`` and ``tables`` (exact names or globs), inherited from general to particular."""

from __future__ import annotations

import difflib
import fnmatch
import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from lsm_core.errors import InvalidOption
from lsm_core.options import duration
from orchestration.policies.model import Pause, Policy, PolicyEntry

POLICIES_VARIABLE: Final = "DREDGE_POLICIES"


class PolicyFile(BaseModel):
    """The whole file; ``PolicyFile.model_json_schema()`` is its JSON schema for editors."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    defaults: PolicyEntry = Field(default_factory=PolicyEntry, description="for every table")
    tables: dict[str, PolicyEntry] = Field(
        default_factory=dict, description="by 'db.table' or glob like 'db.*'; exact names win"
    )


@dataclass(frozen=True)
class Policies:
    """All policies in force; ``source`` names the file, for texts."""

    content: PolicyFile = field(default_factory=PolicyFile)
    source: str = ""

    def of(self, table: str) -> Policy:
        """Return the policy of ``db.table``: built-in, then defaults, then globs in file order, then the exact name."""
        layers = [("defaults", self.content.defaults)]
        layers += [
            (name, entry)
            for name, entry in self.content.tables.items()
            if name != table and fnmatch.fnmatchcase(table, name)
        ]
        layers += [(table, self.content.tables[table])] if table in self.content.tables else []
        values: dict[str, Any] = {}
        origins: dict[str, str] = {}
        for name, entry in layers:
            for key, value in entry.model_dump(exclude_none=True).items():
                key, value = ("idle_after_ms", duration(value)) if key == "idle_after" else (key, value)
                value = entry.paused.text() if isinstance(entry.paused, Pause) and key == "paused" else value
                values[key] = None if value is False else value
                origins[key] = f"{self.source}, {name}"
        return Policy(**values, origins=MappingProxyType(origins))

    def unmatched(self, tables: Collection[str]) -> list[str]:
        """Return a line for every name or glob of the file that fits none of ``tables``: misspelt, or the table is still to come."""
        return [
            f"{self.source}: {name!r} fits no table of the warehouse{_meant(name, tables)}"
            for name in self.content.tables
            if not any(fnmatch.fnmatchcase(table, name) for table in tables)
        ]


def _meant(name: str, tables: Collection[str]) -> str:
    near = difflib.get_close_matches(name, tables, n=1, cutoff=0.8)
    return f" (did you mean {near[0]!r}?)" if near else ""


class _OnceLoader(yaml.SafeLoader):
    """Refuses a key that comes twice: YAML's last one would win, and a pause above it be lost without a word."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if key.value != "<<" and isinstance(key, yaml.ScalarNode):
                if key.value in seen:
                    raise yaml.constructor.ConstructorError(None, None, f"{key.value!r} is there twice", key.start_mark)
                seen.add(key.value)
        found: dict[Any, Any] = super().construct_mapping(node, deep)
        return found


def load_policies(environment: Mapping[str, str] | None = None) -> Policies:
    """Read the file that ``DREDGE_POLICIES`` names; without it every table has the built-in defaults.

    Raises ``InvalidOption`` naming file and place when the file is missing, is not YAML or says something unknown.
    """
    path = (os.environ if environment is None else environment).get(POLICIES_VARIABLE, "").strip()
    return read_policies(Path(path)) if path else Policies()


def read_policies(path: Path) -> Policies:
    """Read one policy file; raises ``InvalidOption``."""
    try:
        raw = yaml.load(path.read_text(encoding="utf-8"), Loader=_OnceLoader)  # noqa: S506  (a SafeLoader)
    except OSError as error:
        raise InvalidOption(POLICIES_VARIABLE, str(path), f"a readable YAML file ({error.strerror})") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InvalidOption(POLICIES_VARIABLE, str(path), f"YAML ({' '.join(str(error).split())})") from error
    try:
        return Policies(PolicyFile.model_validate(raw or {}), path.name)
    except ValidationError as error:
        first = max(error.errors(), key=lambda item: len(item["loc"]))  # of several forms, the one that nearly fits
        place = ".".join(str(step) for step in first["loc"])
        raise InvalidOption(f"{path.name}: {place}", first.get("input"), first["msg"]) from error
