"""Event notification services under the stack: they move frames by topic, and promise nothing more."""
