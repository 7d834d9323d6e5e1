"""Policies: one YAML file with the maintenance rules of each table, and the pure functions that decide from them."""

from __future__ import annotations

from platform_core.policies.decisions import (
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
from platform_core.policies.policy import Policies, Policy
from platform_core.policies.policy_files import PolicySource, load_policies, policy_source
