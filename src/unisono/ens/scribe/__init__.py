"""A peer-to-peer event service: pure state machines, run by the simulator and over real UDP."""
