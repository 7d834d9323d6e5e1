"""One table's policy: thresholds in plain units, with production defaults, and where each value comes from."""

from __future__ import annotations

import datetime
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from pydantic import BaseModel, ConfigDict, Field, StrictInt, field_validator, model_validator

from lsm_core.errors import DredgeError
from lsm_core.options import duration

BUILT_IN: Final = "built-in default"


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

    ``origins`` tells where each value comes from.
    """

    idle_after_ms: int = 20 * 24 * 60 * 60 * 1000
    idle_min_runs: int = 2
    idle_min_files: int = 5
    level0_warn: int = 1_000
    level0_critical: int = 10_000
    paused: str | None = None
    origins: MappingProxyType[str, str] = field(default_factory=lambda: MappingProxyType({}))

    def origin(self, name: str) -> str:
        """Return where the value of ``name`` comes from."""
        return self.origins.get(name, BUILT_IN)
