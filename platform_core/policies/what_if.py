"""Policies for simulations, read from a policy file or from a mapping of options and times."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Final

import yaml

from dredge.platform_core.policies.policy import Policy, PolicyFile
from dredge.platform_core.policies.policy_files import parse_policies
from lsm_core.errors import InvalidOption
from lsm_core.maintenance import SimulatedPolicy

_MOST_BYTES: Final = 1024 * 1024
_SECTIONS: Final = frozenset(PolicyFile.model_fields)


def simulated_policy(text: str, name: str, table: str) -> SimulatedPolicy:
    """Parse the policy under which a simulation replays a table.

    A file with the sections of a policy file (`defaults`, `databases`, `tables`) is read as a policy file; the replay
    uses its idle times and windows for the table. Any other file is a mapping of table options, `look_every`,
    `idle_after`, `idle_min_runs` and `idle_min_files`.

    Args:
        text: content of the file, YAML.
        name: name of the file, for messages.
        table: full name of the table, ``db.table``.

    Raises:
        InvalidOption: the content is not valid; the message names the file and the value.
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
    """Convert a policy to the form that a simulation replays: only the idle rules and the off-peak windows.

    Args:
        policy: policy of the table.
        name: name of the policy in the comparison.
    """
    off_peak = policy.off_peak
    return SimulatedPolicy(
        name,
        idle_after_ms=policy.idle_after_ms,
        idle_min_runs=policy.idle_min_runs,
        idle_min_files=policy.idle_min_files,
        next_open=None if off_peak is None else lru_cache(maxsize=None)(off_peak.next_open),
    )
