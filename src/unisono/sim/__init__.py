"""The deterministic simulator: virtual time, seeded, driving the nodes that ship."""
