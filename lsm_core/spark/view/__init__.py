"""What a table says, in Spark SQL over its raw files: verification's second path, written from the specification of the engines.

It shares no code with Dredge's merge: deduplicate and first-row rank the versions of a key with a window, engines that build rows
fold them with `aggregate`, one version after another. What Spark SQL cannot say exactly is refused by name.
"""

from __future__ import annotations

from lsm_core.spark.view.rows import VERSIONS, merged_view
from lsm_core.spark.view.values import exact_parts

__all__ = ["VERSIONS", "exact_parts", "merged_view"]
