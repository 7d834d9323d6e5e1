"""The LSM table engine. Its public names are imported on first use, so `import lsm_core` is cheap.

No module of the package imports Dagster, and only `lsm_core.spark` imports pyspark. Begin with `table`, the facade, or
with docs/where.md, which names the file of each term.
"""

from __future__ import annotations

from lsm_core.lazy_names import lazy_names

__version__ = "0.2.0"

__getattr__, __dir__, __all__ = lazy_names(__name__)
