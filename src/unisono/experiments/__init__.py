"""The papers' experiments: one file each, found by the registry."""
