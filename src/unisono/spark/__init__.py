"""Ordered events in Spark's Structured Streaming.

in_order    puts the rows of any streaming DataFrame in order, key by key
"""

from unisono.spark.in_order import in_order

__all__ = ["in_order"]
