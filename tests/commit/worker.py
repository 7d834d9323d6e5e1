"""One writer process of the concurrency tests: `python -m tests.commit.worker ROOT USER COMMITS [compact|write|locked]`.

Prints "ready", waits for a line on stdin, then prints the snapshot id or the conflict of each commit.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping
from dataclasses import replace

from lsm_core.commit import CommitHooks, Committer, Phase, origin_of
from lsm_core.errors import CommitConflict
from lsm_core.locks import Lease
from tests.commit.tables import live_files, message, reopen, write_append, write_kv


def stop_myself(phase: Phase, info: Mapping[str, object]) -> None:
    """Stop this process once between check and publication of a commit, until the test continues it."""
    if phase is Phase.PUBLISH and info["attempt"] == 0:
        os.kill(os.getpid(), signal.SIGSTOP)


def stop_with_the_lock() -> None:
    """Stop this process once between lock and snapshot of a commit, until the test continues it."""
    require, stopped = Lease.require, []

    def stopping(lease: Lease) -> None:
        if not stopped:
            stopped.append(lease.token)
            os.kill(os.getpid(), signal.SIGSTOP)
        require(lease)

    Lease.require = stopping  # type: ignore[method-assign]


def main(root: str, user: str, commits: int, mode: str = "") -> None:
    store = reopen(root, clock="system")
    print("ready", flush=True)
    sys.stdin.readline()
    base = int(user) * 1_000_000
    if mode == "locked":
        stop_with_the_lock()
    committer = Committer(store, f"w-{user}", CommitHooks(stop_myself if mode in {"compact", "write"} else None))
    for i in range(commits):
        origin = origin_of(store)
        rows = {"k": [base + i, 10**9], "v": [f"{user}-{i}", user]}
        if mode == "compact":
            old = [file for _, _, file in live_files(store)]
            new = message(store, compact_before=old, compact_after=[file.upgrade(5) for file in old])
        elif store.schema.primary_keys:
            new = message(store, new_files=write_kv(store, rows, first_sequence=2 * i))
        else:
            new = message(store, new_files=write_append(store, rows))
        try:
            made = replace(new, origin=origin)  # as a writer makes it
            print(committer.commit([made], commit_identifier=i).snapshot_id, flush=True)
        except CommitConflict as error:
            print(f"conflict {error}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), *sys.argv[4:])
