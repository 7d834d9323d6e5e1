"""Declarations of the built-in actions: name, verb, help, arguments, and the module that implements the action.

This module does not import the implementing modules, so that listing actions and flags is cheap.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from lsm_core.maintenance.action import Action, Argument
from lsm_core.maintenance.action import ArgumentKind as Kind

_HERE: Final = "lsm_core.maintenance.actions"

# Arguments that several actions take.
PARTITIONS: Final = Argument(
    "partitions",
    Kind.PARTITIONS,
    'Only this partition; may be repeated. Empty value: null; K="": the empty text; '
    'a quoted value may hold any text, for example ",K=".',
    "--partition",
)
_WHERE: Final = Argument(
    "where",
    Kind.TEXT,
    "Only partitions for which this is true, in place of --partition: \"dt >= '2024-01-01' AND h IN (1, 2)\".",
)
_NOW: Final = Argument("now_ms", Kind.TIME, "The plan's time (epoch ms); default: the table's clock.")
_BRANCH: Final = Argument("branch", Kind.TEXT, "The branch.", required=True)
_TAG: Final = Argument("tag", Kind.TEXT, "Name of the tag.", required=True)
_SNAPSHOT: Final = Argument("snapshot_id", Kind.NUMBER, "This snapshot (or a tag of it).", "--snapshot")
_SNAPSHOT_OF_TAG: Final = Argument("tag", Kind.TEXT, "The snapshot of this tag, also one that has expired.")
_OLDER_THAN: Final = Argument(
    "older_than_ms", Kind.AGE, 'Between the two, those older than an age such as "1 h".', "--older-than"
)
_MAX_DELETES: Final = Argument("max_deletes", Kind.NUMBER, "Expire at most so many.")

_ACTIONS: Final = (
    Action(
        "compact",
        "Compact what needs it (or, with --full, everything), "
        "or sort all files so that filters skip most of them (--order-by).",
        (
            Argument("full", Kind.FLAG, "Everything to the last level."),
            Argument(
                "compact_strategy",
                Kind.TEXT,
                'Paimon\'s words for the same: "full", or "minor" (what the table\'s rules pick; the default).',
            ),
            PARTITIONS,
            _WHERE,
            Argument("partition_idle_time", Kind.TEXT, "Only partitions without new data for this long, such as 7d."),
            Argument("buckets", Kind.NUMBERS, "Only this bucket; may be repeated.", "--bucket"),
            Argument(
                "order_by",
                Kind.COLUMNS,
                "Sort append tables without buckets, or tables of dynamic buckets, by these columns: a,b",
            ),
            Argument(
                "strategy",
                Kind.TEXT,
                'How to sort: "order", "zorder", "hilbert", or "auto" (by the number of columns). '
                "Without --order-by: by the table's clustering.columns.",
                aliases=("--order-strategy",),
            ),
            Argument(
                "commit_every",
                Kind.NUMBER,
                "One commit per this many buckets, kept even if others fail (default: one commit, all or nothing).",
            ),
            _NOW,
        ),
        module=f"{_HERE}.compact.execution",
        runs_tasks=True,
    ),
    Action(
        "expire_snapshots",
        "Expire old snapshots; their files wait in the trash until `dredge trash --sweep` after the grace.",
        (
            Argument("retain_max", Kind.NUMBER, "Keep at most so many snapshots."),
            Argument("retain_min", Kind.NUMBER, "Keep at least so many snapshots."),
            _OLDER_THAN,
            _MAX_DELETES,
            _NOW,
        ),
        runs_tasks=True,
        plans_with_tasks=True,
        verb="expire",
    ),
    Action(
        "expire_changelogs",
        "Expire changelogs that outlived their snapshots; their files wait in the trash as those of snapshots do.",
        (
            Argument("retain_max", Kind.NUMBER, "Keep those of at most so many snapshots, counted from the newest."),
            Argument("retain_min", Kind.NUMBER, "Keep those of at least so many snapshots, counted alike."),
            _OLDER_THAN,
            _MAX_DELETES,
            Argument("delete_all", Kind.FLAG, "Every changelog that outlived its snapshot and that no consumer needs."),
            _NOW,
        ),
    ),
    Action(
        "orphans",
        "Remove unreferenced files; they wait in the trash until `dredge trash --sweep` after the grace.",
        (
            Argument(
                "older_than_ms",
                Kind.AGE,
                'Files that were last changed longer ago than an age such as "3 d" (default: 24 h).',
                "--older-than",
            ),
            Argument(
                "max_share", Kind.NUMBER, "Percent of the table's files, or of its bytes, that may go (default: 20)."
            ),
            _NOW,
        ),
        module=f"{_HERE}.orphans.orphan_removal",
        runs_tasks=True,
        plans_with_tasks=True,
    ),
    Action(
        "expire_partitions",
        "Drop the partitions that are older than the table keeps them (`partition.expiration-time`), in one commit.",
        (
            Argument(
                "older_than_ms",
                Kind.AGE,
                'Partitions of an earlier time than an age such as "30 d" ago; '
                "default: the table's option 'partition.expiration-time'.",
                "--older-than",
            ),
            Argument("strategy", Kind.TEXT, "values-time, or update-time: when a partition last got a file."),
            Argument("timestamp_pattern", Kind.TEXT, 'How values make a time, such as "$dt $hour:00:00".'),
            Argument("timestamp_formatter", Kind.TEXT, "Java's pattern of that time, such as yyyyMMdd."),
            Argument("max_expires", Kind.NUMBER, "Drop at most so many."),
            _NOW,
        ),
    ),
    Action(
        "manifests",
        "Merge manifests that are small or hold deletions, so that plans read fewer; no data file changes.",
        (_NOW,),
        module=f"{_HERE}.compact_manifests",
        verb="compact-manifests",
    ),
    Action(  # the command line's verb `trash` lists deletion records too
        "trash",
        "Delete the files in the trash whose grace is over and that nothing needs.",
        (_NOW,),
        module=f"{_HERE}.sweep_trash",
        runs_tasks=True,
        plans_with_tasks=True,
        verb="",
    ),
    Action(
        "restore",
        "Put expired snapshots or changelogs back, while their files still exist.",
        (Argument("trash_id", Kind.TEXT, "A deletion record, as `dredge trash` lists them.", required=True),),
    ),
    Action(
        "rescale",
        "Rewrite partitions with another number of buckets (default: the table's option 'bucket', altered before).",
        (
            Argument("bucket_num", Kind.NUMBER, "The new number of buckets; default: the table's option 'bucket'."),
            PARTITIONS,
            _WHERE,
            _NOW,
        ),
        runs_tasks=True,
    ),
    Action(
        "assign_buckets",
        "Move postponed rows (option 'bucket' = -2) into real buckets, where readers see them.",
        (PARTITIONS, _NOW),
        runs_tasks=True,
    ),
    Action(
        "undo",
        "Undo a compaction: put the files that it replaced back, in a new snapshot.",
        (
            Argument("run_id", Kind.TEXT, "The compaction's run, as `dredge ledger` lists them.", required=True),
            Argument("partial", Kind.FLAG, "Undo the buckets that can be undone and leave the others."),
            Argument(
                "allow_changes",
                Kind.FLAG,
                "Also where reads would return other rows than now (after a compaction that changed rows), "
                "or an open writer could interfere.",
            ),
        ),
        module=f"{_HERE}.undo.undoing",
    ),
    Action(
        "repair",
        "Correct the hints LATEST and EARLIEST, set damaged snapshots aside, and bridge gaps in the ids of snapshots, "
        "which stop expiry elsewhere.",
        (_NOW,),
    ),
    Action(
        "remove_unexisting_files",
        "List the data files that the table references and that are missing (--dry-run), "
        "or remove them from the table by a commit.",
        (
            PARTITIONS,
            Argument("max_share", Kind.NUMBER, "Percent of the table's files that may be taken out (default: 20)."),
            _NOW,
        ),
    ),
    Action(
        "remove_unexisting_manifests",
        "List the manifests that the table references and that are missing (--dry-run), or drop them by a commit.",
        (
            Argument("max_share", Kind.NUMBER, "Percent of the table's manifests that may be taken out (default: 20)."),
            _NOW,
        ),
    ),
    Action(
        "refresh_iceberg",
        "Write the Iceberg metadata of the newest snapshot without a commit, after a killed writer or a rollback.",
        (
            Argument(
                "drop_older",
                Kind.FLAG,
                "Also if it is up to date: leave out older snapshots, so that they may expire.",
            ),
            _NOW,
        ),
    ),
    Action(
        "rewrite_file_index",
        "Write the file indexes that the options name (`file-index.<kind>.columns`) for files that lack them; "
        "no data file is rewritten.",
        (PARTITIONS, _WHERE, _NOW),
    ),
    Action(
        "purge",
        "Empty a table AND drop its history: all rows, snapshots and changelogs are deleted, the schema stays. "
        "Name the table twice.",
        (
            Argument("confirm", Kind.TEXT, "The table's name once more: database.table.", required=True),
            _NOW,
        ),
    ),
    Action(
        "analyze",
        "Count rows and values of columns for query planners: a snapshot of kind ANALYZE with statistics.",
        (Argument("columns", Kind.COLUMNS, "Only these columns; default: all that have statistics."),),
    ),
    Action(  # the command line has it as `dredge branch` too
        "delete_branch",
        "Delete a branch; the files that only it needs wait in the trash until `dredge trash --sweep` after the grace.",
        (_BRANCH,),
        verb="",
    ),
    Action(  # the command line has it as `dredge branch` too
        "fast_forward",
        "Replace the table's history by a branch's; commits to the table since the branch began are dropped.",
        (_BRANCH,),
        verb="",
    ),
    Action(
        "copy_table",
        "Copy the newest snapshot, or some partitions, into a new table, for example in another warehouse; "
        "an interrupted copy is continued.",
        (
            Argument("target", Kind.TEXT, "Name of the new table: database.table.", required=True),
            Argument(
                "target_warehouse",
                Kind.TEXT,
                "Folder or address of the new table's warehouse; default: the table's own warehouse.",
                "--to-warehouse",
            ),
            PARTITIONS,
            _WHERE,
            _NOW,
        ),
    ),
    Action(
        "merge_branch",
        "Add the files that a branch has appended to an append table, in one commit; the branch stays.",
        (_BRANCH, _NOW),
    ),
    Action(  # the command line has it as `dredge tag create` too
        "create_tag",
        "Tag a snapshot, so that it outlives expiry.",
        (
            _TAG,
            Argument("snapshot_id", Kind.NUMBER, "This snapshot (default: the newest).", "--snapshot"),
            Argument("time_retained", Kind.TEXT, 'Expire it after a time such as "7 d" (expire_tags).'),
            Argument("replace", Kind.FLAG, "Move a tag of that name, if there is one."),
            _NOW,
        ),
        verb="",
    ),
    Action(  # the command line has it as `dredge tag delete` too
        "delete_tag",
        "Delete a tag; the files that it alone kept wait in the trash until `dredge trash --sweep` after the grace.",
        (_TAG, _NOW),
        verb="",
    ),
    Action(  # the command line has it as `dredge tag expire` too
        "expire_tags",
        "Expire tags: those kept long enough, and automatic ones beyond tag.num-retained-max.",
        (
            Argument("older_than_ms", Kind.AGE, 'Also all older than an age such as "30 d".', "--older-than"),
            _NOW,
        ),
        verb="",
    ),
    Action(
        "rollback",
        "Go back to a snapshot, a tag, a time or a watermark; "
        "newer snapshots wait in the trash until `dredge trash --sweep` after the grace.",
        (
            _SNAPSHOT,
            _SNAPSHOT_OF_TAG,
            Argument(
                "timestamp_ms", Kind.NUMBER, "The newest snapshot not younger than this (epoch ms).", "--timestamp"
            ),
            Argument("watermark", Kind.NUMBER, "The newest snapshot with a watermark (epoch ms) of this or less."),
            _NOW,
        ),
        one_of=("snapshot_id", "tag", "timestamp_ms", "watermark"),
    ),
    Action(  # one pass; the command line's verb `recover` makes pass after pass
        "recover",
        "Merge a bounded part of a very large level 0, the oldest files first.",
        (
            Argument("files", Kind.NUMBER, "Level-0 files of a pass, at most (10000)."),
            PARTITIONS,
            _NOW,
        ),
        module=f"{_HERE}.recover.recovering",
        runs_tasks=True,
        verb="",
    ),
    Action(
        "rollback_as_latest",
        "Commit the content of an older snapshot or tag as the newest snapshot, of all partitions or of some; "
        "the snapshots between stay.",
        (_SNAPSHOT, _SNAPSHOT_OF_TAG, PARTITIONS, _NOW),
    ),
    Action(
        "drop_partitions",
        "Drop partitions in one commit; `dredge rollback-as-latest` brings them back while the snapshot before exists.",
        (
            Argument(
                "partitions",
                Kind.PARTITIONS,
                "These partitions; columns may be left out. May be repeated. Empty value: null.",
                PARTITIONS.flag,
            ),
            _NOW,
        ),
    ),
)

BUILT_IN: Final[Mapping[str, Action]] = {action.name: action for action in _ACTIONS}
"""The built-in actions by name, in the order in which they are listed."""
