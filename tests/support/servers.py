"""Real servers for tests."""

from unisono.bench.server import NatsServer, free_port

__all__ = ["NatsServer", "free_port"]
