"""Policies: what maintenance may do to which table and when, from one YAML file, and the pure decisions made from them."""

from __future__ import annotations

from orchestration.policies.decisions import (
    Asked,
    Decision,
    History,
    Now,
    Outcome,
    Reason,
    Subject,
    TableFacts,
    decide,
    decide_all,
    subjects,
)
from orchestration.policies.policy import Policies, Policy
from orchestration.policies.policy_files import PolicySource, load_policies, policy_source

__all__ = [
    "Asked",
    "Decision",
    "History",
    "Now",
    "Outcome",
    "Policies",
    "Policy",
    "PolicySource",
    "Reason",
    "Subject",
    "TableFacts",
    "decide",
    "decide_all",
    "load_policies",
    "policy_source",
    "subjects",
]
