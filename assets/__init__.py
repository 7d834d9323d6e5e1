"""Assets: two per table of any warehouse, the data (written by writers) and the layout (compacted by maintenance).

This package holds no rule of maintenance and no sensor: `platform_core.policies` and `orchestration` have them. Only
`demo` may name a table. Begin with `table_assets`.
"""

from __future__ import annotations

from assets.table_assets import data_asset, layout_asset
