"""Options of tables and catalogs: a registry of all keys with types and defaults, and typed views of option values.

An option is declared once, in `keys`; the package that uses the option implements its effect. This package reads no
table. Begin with `table_options`.
"""

from __future__ import annotations

from lsm_core.options.catalog_options import (
    STORAGE_OPTIONS,
    CatalogOptions,
    is_address,
    is_catalog_option,
    parse_catalog_options,
    warehouse_options,
)
from lsm_core.options.external_roots import (
    EXTERNAL_ROOTS,
    EXTERNAL_ROOTS_OPTION,
    ExternalRoot,
    find_root,
    parse_external_roots,
)
from lsm_core.options.keys import ENUMS, FAMILIES, OTHER_ENGINES, READING, Effect, Family, Key
from lsm_core.options.misnamed import misnamed
from lsm_core.options.operator import ALLOWED_PLACES, is_allowed_place, is_secret, mask_secrets
from lsm_core.options.table_options import (
    ALIASES,
    CREATION_ONLY,
    INLINE_VARIABLE,
    REGISTRY,
    PaimonVersion,
    TableOptions,
    answers_differ,
    canonical,
    check_change,
    duration,
    find_key,
    inline_default,
    memory_size,
    mistyped_reading,
    not_acted_on,
    order_of_versions_broken,
    parse_digits,
    version_followed,
    version_written_by,
    whole_number,
    written_as,
)
