"""Recovery of a table with a very large level 0 by bounded passes, each of which is verified and committed."""
