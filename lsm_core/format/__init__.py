"""Pure bytes of the table format: rows, hashes, schemas, snapshots, manifests, statistics, paths. No file, no clock."""
