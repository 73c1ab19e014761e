"""The deterministic simulator: virtual time, seeded, driving the same node objects as the runtime."""
