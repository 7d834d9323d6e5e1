"""What a file says that a simulation replays a table under: a whole policy file, or the options and times of one policy."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Final

import yaml

from lsm_core.errors import InvalidOption
from lsm_core.maintenance import SimulatedPolicy
from orchestration.policies.policy import Policy, PolicyFile
from orchestration.policies.policy_files import parse_policies

_MOST_BYTES: Final = 1024 * 1024
_SECTIONS: Final = frozenset(PolicyFile.model_fields)


def simulated_policy(text: str, name: str, table: str) -> SimulatedPolicy:
    """Return the policy that ``text`` (YAML), a file called ``name``, gives ``table``.

    A file with the sections of a policy file (`defaults`, `databases`, `tables`) is read as one: what it says of the table's idle time and windows is
    replayed. Any other is a mapping of table options, `look_every`, `idle_after`, `idle_min_runs` and `idle_min_files`.
    Raises InvalidOption naming the file and what is wrong.
    """
    if len(text) > _MOST_BYTES:
        raise InvalidOption("policy", name, f"a file of at most {_MOST_BYTES // 1024} KiB")
    try:
        content = yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise InvalidOption("policy", name, f"YAML ({' '.join(str(error).split())})") from error
    if content is None:
        return SimulatedPolicy.of({"name": name})
    if isinstance(content, Mapping) and _SECTIONS & set(content):
        return as_simulated(parse_policies(text, name).of(table), name)
    return SimulatedPolicy.of(content, name)


def as_simulated(policy: Policy, name: str) -> SimulatedPolicy:
    """Return what a policy means for a replay: when a partition is idle, and when something may be started."""
    off_peak = policy.off_peak
    return SimulatedPolicy(
        name,
        idle_after_ms=policy.idle_after_ms,
        idle_min_runs=policy.idle_min_runs,
        idle_min_files=policy.idle_min_files,
        next_open=None if off_peak is None else lru_cache(maxsize=None)(off_peak.next_open),
    )


__all__ = ["as_simulated", "simulated_policy"]
