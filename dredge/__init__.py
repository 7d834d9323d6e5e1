"""The platform: Dagster definitions that maintain every table of a warehouse, over the engine `lsm_core`.

Importing ``dredge`` is cheap: its public names are imported on first use. In a checkout, ``orchestration``, ``assets``,
``checks`` and ``platform_core`` are links to the folders beside this one, so that each module has one dotted name,
``dredge.…``, everywhere; docs/decisions/two-names.md has the reasons. Begin with ``orchestration``.
"""

from __future__ import annotations

from lsm_core import __version__ as __version__
from lsm_core.lazy_names import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__)
