"""Manifests, manifest lists and index manifests: the files that list a snapshot's files (format.md 4, 10)."""

from __future__ import annotations

from lsm_core.format.manifest.index_manifest import (
    HASH_INDEX,
    VECTORS_INDEX,
    DeletionVectorRange,
    IndexFileMeta,
    IndexManifestEntry,
    change_index_manifest,
    decode_index_manifest,
    encode_index_manifest,
)
from lsm_core.format.manifest.manifest_entries import decode_manifest, encode_manifest, from_avro_table, has_unknown
from lsm_core.format.manifest.manifest_lists import (
    ManifestFileMeta,
    decode_manifest_list,
    encode_manifest_list,
    manifest_meta,
    partition_stats,
)
from lsm_core.format.manifest.manifest_schemas import MANIFEST_ENTRY, MANIFEST_LIST
from lsm_core.format.manifest.merge_entries import Cancelling, HashesMeet, identity_codes, merge_entries
