"""The pure contract: events, effects, layers, stack, node, limits, wire format, entropy.

Nothing in here does I/O, reads a clock or draws global randomness: time and seeds come from
outside, effects go out. The simulator and the asyncio runtime drive the same objects.
"""
