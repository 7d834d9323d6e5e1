# Public names of the package: `__init__.py` imports each on first use, type checkers read them here.
from lsm_core.maintenance.action import Action as Action
from lsm_core.maintenance.action import ActionWork as ActionWork
from lsm_core.maintenance.action import Applied as Applied
from lsm_core.maintenance.action import ApplyOutcome as ApplyOutcome
from lsm_core.maintenance.action import Argument as Argument
from lsm_core.maintenance.action import ArgumentKind as ArgumentKind
from lsm_core.maintenance.action import Declined as Declined
from lsm_core.maintenance.action import MaintenancePlan as MaintenancePlan
from lsm_core.maintenance.action import PlanEstimate as PlanEstimate
from lsm_core.maintenance.action import PlanItem as PlanItem
from lsm_core.maintenance.action import PlannedFile as PlannedFile
from lsm_core.maintenance.action import Report as Report
from lsm_core.maintenance.action import Runner as Runner
from lsm_core.maintenance.action import action_names as action_names
from lsm_core.maintenance.action import all_actions as all_actions
from lsm_core.maintenance.action import find_action as find_action
from lsm_core.maintenance.action import plan_maintenance as plan_maintenance
from lsm_core.maintenance.action import register as register
from lsm_core.maintenance.actions.analyze import AnalyzeReport as AnalyzeReport
from lsm_core.maintenance.actions.assign_buckets import AssignItem as AssignItem
from lsm_core.maintenance.actions.assign_buckets import count_assigned_rows as count_assigned_rows
from lsm_core.maintenance.actions.assign_buckets import newest_compaction as newest_compaction
from lsm_core.maintenance.actions.assign_buckets import waiting_items as waiting_items
from lsm_core.maintenance.actions.compact.compaction import CompactionReport as CompactionReport
from lsm_core.maintenance.actions.compact.compaction import CompactItem as CompactItem
from lsm_core.maintenance.actions.compact.compaction import Verification as Verification
from lsm_core.maintenance.actions.compact.planning import Calibration as Calibration
from lsm_core.maintenance.actions.compact.planning import calibrate as calibrate
from lsm_core.maintenance.actions.compact.planning import calibration_of as calibration_of
from lsm_core.maintenance.actions.compact.planning import plan_compaction as plan_compaction
from lsm_core.maintenance.actions.compact_manifests import (
    ManifestCompactionReport as ManifestCompactionReport,
)
from lsm_core.maintenance.actions.create_tag import TagCreationReport as TagCreationReport
from lsm_core.maintenance.actions.delete_branch import BranchDeletionReport as BranchDeletionReport
from lsm_core.maintenance.actions.delete_branch import plan_branch_deletion as plan_branch_deletion
from lsm_core.maintenance.actions.delete_tag import TagDeletionReport as TagDeletionReport
from lsm_core.maintenance.actions.drop_partitions import PartitionDropReport as PartitionDropReport
from lsm_core.maintenance.actions.expire_changelogs import (
    ChangelogExpiryReport as ChangelogExpiryReport,
)
from lsm_core.maintenance.actions.expire_changelogs import (
    ExpireChangelogItem as ExpireChangelogItem,
)
from lsm_core.maintenance.actions.expire_changelogs import (
    plan_changelog_expiry as plan_changelog_expiry,
)
from lsm_core.maintenance.actions.expire_partitions import (
    ExpirePartitionItem as ExpirePartitionItem,
)
from lsm_core.maintenance.actions.expire_partitions import (
    PartitionExpiryReport as PartitionExpiryReport,
)
from lsm_core.maintenance.actions.expire_partitions import (
    plan_partition_expiry as plan_partition_expiry,
)
from lsm_core.maintenance.actions.expire_snapshots import ExpireItem as ExpireItem
from lsm_core.maintenance.actions.expire_snapshots import ExpiryReport as ExpiryReport
from lsm_core.maintenance.actions.expire_snapshots import plan_expiry as plan_expiry
from lsm_core.maintenance.actions.fast_forward import FastForwardReport as FastForwardReport
from lsm_core.maintenance.actions.fast_forward import plan_fast_forward as plan_fast_forward
from lsm_core.maintenance.actions.orphans.orphan_removal import OrphanReport as OrphanReport
from lsm_core.maintenance.actions.orphans.orphan_removal import plan_orphans as plan_orphans
from lsm_core.maintenance.actions.purge import PurgeReport as PurgeReport
from lsm_core.maintenance.actions.recover.recovering import RecoveryPass as RecoveryPass
from lsm_core.maintenance.actions.recover.recovering import RecoveryReport as RecoveryReport
from lsm_core.maintenance.actions.recover.recovering import plan_recovery as plan_recovery
from lsm_core.maintenance.actions.recover.recovering import recover as recover
from lsm_core.maintenance.actions.remove_unexisting_files import (
    MissingFilesReport as MissingFilesReport,
)
from lsm_core.maintenance.actions.remove_unexisting_manifests import (
    MissingManifestsReport as MissingManifestsReport,
)
from lsm_core.maintenance.actions.repair import RepairReport as RepairReport
from lsm_core.maintenance.actions.rescale import RescaleItem as RescaleItem
from lsm_core.maintenance.actions.rescale import RescaleReport as RescaleReport
from lsm_core.maintenance.actions.rescale import plan_rescale as plan_rescale
from lsm_core.maintenance.actions.restore import RestoreReport as RestoreReport
from lsm_core.maintenance.actions.restore import plan_restore as plan_restore
from lsm_core.maintenance.actions.rollback import RollbackReport as RollbackReport
from lsm_core.maintenance.actions.rollback_as_latest import (
    RollbackAsLatestReport as RollbackAsLatestReport,
)
from lsm_core.maintenance.actions.rollback_as_latest import (
    find_restored_snapshot as find_restored_snapshot,
)
from lsm_core.maintenance.actions.sweep_trash import SweepReport as SweepReport
from lsm_core.maintenance.actions.sweep_trash import plan_sweep as plan_sweep
from lsm_core.maintenance.actions.undo.replaced_files import UndoneCompaction as UndoneCompaction
from lsm_core.maintenance.actions.undo.replaced_files import changed_places as changed_places
from lsm_core.maintenance.actions.undo.replaced_files import find_undone_compaction as find_undone_compaction
from lsm_core.maintenance.actions.undo.undoing import UndoItem as UndoItem
from lsm_core.maintenance.actions.undo.undoing import UndoReport as UndoReport
from lsm_core.maintenance.actions.undo.undoing import plan_undo as plan_undo
from lsm_core.maintenance.apply import apply_plan as apply_plan
from lsm_core.maintenance.apply import dry_run as dry_run
from lsm_core.maintenance.checks.checking import CHECKS as CHECKS
from lsm_core.maintenance.checks.checking import PAGES_CHECK as PAGES_CHECK
from lsm_core.maintenance.checks.checking import Check as Check
from lsm_core.maintenance.checks.checking import check_table as check_table
from lsm_core.maintenance.checks.checking import checks_of as checks_of
from lsm_core.maintenance.checks.checking import run_check as run_check
from lsm_core.maintenance.checks.outcome import CheckLimits as CheckLimits
from lsm_core.maintenance.checks.outcome import CheckReport as CheckReport
from lsm_core.maintenance.checks.outcome import DeepRead as DeepRead
from lsm_core.maintenance.checks.outcome import PageProblem as PageProblem
from lsm_core.maintenance.file_holders import Holder as Holder
from lsm_core.maintenance.file_holders import HolderKind as HolderKind
from lsm_core.maintenance.holder_sizes import holds as holds
from lsm_core.maintenance.ledger import LedgerEntry as LedgerEntry
from lsm_core.maintenance.ledger import applied_before as applied_before
from lsm_core.maintenance.ledger import find_entry as find_entry
from lsm_core.maintenance.ledger import iterate_ledger as iterate_ledger
from lsm_core.maintenance.ledger import read_ledger as read_ledger
from lsm_core.maintenance.observe import BucketHealth as BucketHealth
from lsm_core.maintenance.observe import health as health
from lsm_core.maintenance.row_explanation.explain_row import ColumnExplanation as ColumnExplanation
from lsm_core.maintenance.row_explanation.explain_row import RowExplanation as RowExplanation
from lsm_core.maintenance.row_explanation.explain_row import RowVersion as RowVersion
from lsm_core.maintenance.row_explanation.explain_row import explain_row as explain_row
from lsm_core.maintenance.saved_plans import WaitingPlan as WaitingPlan
from lsm_core.maintenance.saved_plans import hold_plan as hold_plan
from lsm_core.maintenance.saved_plans import load_plan as load_plan
from lsm_core.maintenance.saved_plans import save_plan as save_plan
from lsm_core.maintenance.saved_plans import saved_plan_hashes as saved_plan_hashes
from lsm_core.maintenance.saved_plans import waiting_plans as waiting_plans
from lsm_core.maintenance.simulation import SimulatedPolicy as SimulatedPolicy
from lsm_core.maintenance.simulation import simulate as simulate
from lsm_core.maintenance.trash import DeleteItem as DeleteItem
from lsm_core.maintenance.trash import Trash as Trash
from lsm_core.maintenance.trash import TrashRecord as TrashRecord
from lsm_core.maintenance.trash import read_trash as read_trash
from lsm_core.maintenance.unplanned_actions import create_branch as create_branch
from lsm_core.maintenance.unplanned_actions import forget_consumer as forget_consumer
from lsm_core.maintenance.unplanned_actions import rename_branch as rename_branch
from lsm_core.maintenance.unplanned_actions import rename_tag as rename_tag
from lsm_core.maintenance.unplanned_actions import reset_consumer as reset_consumer
from lsm_core.maintenance.verification_scope import Proof as Proof
from lsm_core.maintenance.verification_scope import find_rewrite as find_rewrite
from lsm_core.maintenance.verification_scope import proof_of as proof_of
from lsm_core.maintenance.verify import BucketDifference as BucketDifference
from lsm_core.maintenance.verify import ReferenceJudge as ReferenceJudge
from lsm_core.maintenance.verify import VerifyReport as VerifyReport
from lsm_core.maintenance.verify import verify_snapshots as verify_snapshots
