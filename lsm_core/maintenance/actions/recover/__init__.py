"""Recovery of a table with a very large level 0 by compaction passes of bounded size, each verified and committed."""
