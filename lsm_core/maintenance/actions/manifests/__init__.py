"""Manifest compaction: small manifests, and those with deletions, are merged into few large ones."""

from __future__ import annotations

from lsm_core.maintenance.actions import NOW, BuiltInAction


class Manifests(BuiltInAction):
    """Action "manifests"."""

    name = "manifests"
    verb = "compact-manifests"
    help = "Merge manifests that are small or hold deletions, so that plans read fewer; no data file changes."
    commits = True
    arguments = (NOW,)
    items = ("actions.manifests.manifest_compaction.MergeManifestItem",)
    planned_by = "actions.manifests.manifest_compaction.plan_manifest_compaction"
    applied_by = "actions.manifests.manifest_compaction.apply_manifest_compaction"
    fits_by = "actions.manifests.manifest_compaction.manifest_compaction_fits"
    report = "actions.manifests.manifest_compaction.ManifestCompactionReport"


ACTION = Manifests()
