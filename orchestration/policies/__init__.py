"""Policies: what maintenance may do to which table and when, from one YAML file, and the pure decisions made from them."""

from __future__ import annotations

from orchestration.policies.decision import Decision, Outcome, Reason
from orchestration.policies.file import Policies, load_policies
from orchestration.policies.model import Policy

__all__ = ["Decision", "Outcome", "Policies", "Policy", "Reason", "load_policies"]
