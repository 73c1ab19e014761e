"""Benchmarks for `unisono bench NAME`: each measures a peer in the same run."""
