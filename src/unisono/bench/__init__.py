"""Benchmarks that `unisono bench NAME` runs: each measures itself against a peer in the same run."""
