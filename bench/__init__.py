"""Benchmarks; each compares Dredge with a limit measured in the same alternating run, never with a recorded number.

No package imports this one. Begin with `python -m bench --help`, or with
`harness`, which runs the rounds.
"""

from __future__ import annotations

import lsm_core as lsm_core  # before any import of Arrow: the engine configures Arrow's allocator
