"""Assets: two per table of any warehouse, the data (written by writers) and the layout (compacted by maintenance).

This package holds no rule of maintenance and no sensor: `dredge.platform_core.policies` and `dredge.orchestration` have
them. Only `demo` may name a table. Begin with `table_assets`.
"""

from __future__ import annotations

if __name__ == "assets":  # a second copy of every module would exist beside that of `dredge`
    raise ImportError("`assets` is now `dredge.assets`: rename it in imports and in Dagster's YAML files")

from dredge.assets.table_assets import data_asset, layout_asset
