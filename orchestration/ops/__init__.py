"""The five verbs of maintenance as Dagster ops: observe, plan, apply, verify, record; thin wrappers around the engine.

Ops hand JSON to each other (`payload`), so a run's storage holds text that people can read; each op is idempotent: a
retry looks at the table again and replans from its newest snapshot.
"""

from __future__ import annotations

from orchestration.ops.apply import apply_op
from orchestration.ops.expire import expire_op
from orchestration.ops.observe import observe_op
from orchestration.ops.plan import plan_op
from orchestration.ops.record import record_op
from orchestration.ops.verify import verify_op

__all__ = ["apply_op", "expire_op", "observe_op", "plan_op", "record_op", "verify_op"]
