"""Event notification services under the stack: they move frames by topic, no more."""
