"""Policies: one YAML file with the maintenance rules of each table, and the pure functions that decide from them.

The functions receive health, history and time as arguments. They read no table, start no run and import no Dagster
sensor. Begin with `decisions` (the decision for a partition) and `policy` (the rules of a table).
"""

from __future__ import annotations

from dredge.platform_core.policies.decisions import (
    Decision,
    DecisionOutcome,
    DecisionScope,
    History,
    Now,
    Reason,
    Subject,
    TableFacts,
    decide,
    decide_all,
    subjects,
)
from dredge.platform_core.policies.policy import Policies, Policy
from dredge.platform_core.policies.policy_files import PolicySource, load_policies, policy_source
