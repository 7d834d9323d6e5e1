# Public names of the package: `__init__.py` imports each on first use, type checkers read them here.
from lsm_core.commit.attempt import CommitHooks as CommitHooks
from lsm_core.commit.attempt import Phase as Phase
from lsm_core.commit.attempt import abort as abort
from lsm_core.commit.attempt import discard_on_failure as discard_on_failure
from lsm_core.commit.attempt import messages_of as messages_of
from lsm_core.commit.attempt import origin_at as origin_at
from lsm_core.commit.attempt import origin_of as origin_of
from lsm_core.commit.committer import BATCH as BATCH
from lsm_core.commit.committer import CommitResult as CommitResult
from lsm_core.commit.committer import Committer as Committer
from lsm_core.commit.message import CommitMessage as CommitMessage
from lsm_core.commit.message import Origin as Origin
from lsm_core.commit.message import index_state_of as index_state_of
