"""Policies: one table's thresholds with production defaults, and the YAML file (``defaults``, exact names, globs) that they are read from."""

from __future__ import annotations

import datetime
import difflib
import fnmatch
import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Final

import yaml
from pydantic import BaseModel, ConfigDict, Field, StrictInt, ValidationError, field_validator, model_validator

from lsm_core.errors import DredgeError, InvalidOption
from lsm_core.options import duration

BUILT_IN: Final = "built-in default"
POLICIES_VARIABLE: Final = "DREDGE_POLICIES"
_ASSET: Final = r"^[^/\s]+(/[^/\s]+)*$"


class Pause(BaseModel):
    """Why maintenance rests, and since when."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    reason: str = Field(min_length=1, description="why maintenance rests, in words")
    since: datetime.date | None = Field(None, description="the day it was decided, like 2013-09-30")

    def text(self) -> str:
        """As ticks say it: ``storage move, since 2013-09-30``."""
        return self.reason if self.since is None else f"{self.reason}, since {self.since}"


class PolicyEntry(BaseModel):
    """What a policy file may say about some tables; everything is optional and inherits."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    idle_after: str | StrictInt | None = Field(
        None, description="a partition without appends for this long is idle, like '20 d'"
    )
    idle_min_runs: int | None = Field(
        None, ge=2, description="idle primary-key partitions with this many sorted runs are merged"
    )
    idle_min_files: int | None = Field(
        None, ge=2, description="idle append partitions with this many small files are merged"
    )
    level0_warn: int | None = Field(None, ge=1, description="level-0 files in one bucket that make level0_backlog warn")
    level0_critical: int | None = Field(
        None, ge=1, description="level-0 files in one bucket that make level0_backlog fail"
    )
    paused: str | bool | Pause | None = Field(
        None, description="why maintenance rests (a text, or reason and since); false ends a pause that was inherited"
    )

    owners: list[Annotated[str, Field(pattern=r"^(team:[A-Za-z0-9_.-]+|[^@\s]+@[^@\s]+\.[^@\s]+)$")]] | None = Field(
        None, description="owners of the table's assets: 'team:name' or e-mail addresses"
    )
    group: str | None = Field(None, pattern=r"^[A-Za-z0-9_]+$", description="Dagster's group of the table's assets")
    tags: (
        dict[
            Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{1,63}(/[A-Za-z0-9_.-]{1,63})?$")],
            Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{0,63}$")],
        ]
        | None
    ) = Field(None, description="tags of the table's assets")
    upstream: list[Annotated[str, Field(pattern=_ASSET)]] | None = Field(
        None, description="keys of assets that the table's data are made from, like 'raw/orders_csv'"
    )
    downstream: list[Annotated[str, Field(pattern=_ASSET)]] | None = Field(
        None, description="keys of assets that read the table, like 'reports/revenue'"
    )

    @field_validator("idle_after")
    @classmethod
    def _is_duration(cls, value: str | int | None) -> str | int | None:
        try:
            if value is not None:
                duration(value)
        except DredgeError as error:
            raise ValueError(str(error)) from error  # pydantic then knows the place
        return value

    @model_validator(mode="after")
    def _in_order(self) -> PolicyEntry:
        said = self.paused.reason if isinstance(self.paused, Pause) else self.paused
        if said is True or (isinstance(said, str) and not said.strip()):
            raise ValueError("paused needs a reason as text, like 'storage move, since 2013-09-30'")
        if (
            self.level0_warn is not None
            and self.level0_critical is not None
            and self.level0_warn > self.level0_critical
        ):
            raise ValueError(f"level0_warn ({self.level0_warn}) is above level0_critical ({self.level0_critical})")
        return self


@dataclass(frozen=True)
class Policy:
    """What holds for one table. ``idle_after_ms`` in ms, ``paused`` in words (None: at work), the others counts.

    ``owners``, ``group`` and ``tags`` of its assets (empty: the platform's own), ``upstream`` and ``downstream`` as keys like 'raw/orders_csv'.

    ``origins`` tells where each value comes from.
    """

    idle_after_ms: int = 20 * 24 * 60 * 60 * 1000
    idle_min_runs: int = 2
    idle_min_files: int = 5
    level0_warn: int = 1_000
    level0_critical: int = 10_000
    paused: str | None = None
    owners: Sequence[str] = ()
    group: str = ""
    tags: Mapping[str, str] = field(default_factory=dict)
    upstream: Sequence[str] = ()
    downstream: Sequence[str] = ()
    origins: MappingProxyType[str, str] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def declares(self) -> bool:
        """Whether it says anything of the table's assets."""
        return bool(self.owners or self.group or self.tags or self.upstream or self.downstream)

    def origin(self, name: str) -> str:
        """Return where the value of ``name`` comes from."""
        return self.origins.get(name, BUILT_IN)


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
