"""Commits: messages become snapshots, with conflicts found, races retried and three honest outcomes."""

from __future__ import annotations

from lsm_core.commit.attempt import CommitHooks, Hook, Phase
from lsm_core.commit.committer import BATCH, CommitResult, Committer
from lsm_core.commit.drafts import abort, discard_on_failure, messages_of, origin_of
from lsm_core.commit.message import CommitMessage, Origin, index_state_of

__all__ = [
    "BATCH",
    "CommitHooks",
    "CommitMessage",
    "CommitResult",
    "Committer",
    "Hook",
    "Origin",
    "Phase",
    "abort",
    "discard_on_failure",
    "index_state_of",
    "messages_of",
    "origin_of",
]
