"""Events in Spark's Structured Streaming: in order out of a bus and back; rows of others in order.

source.py      `format("unisono")`: streams of events, journals and traces as batches
sink.py        rows onto the bus, once each
collector.py   the process that fills a source's journal
options.py     what can be asked for
tables.py      traces as batches
in_order.py    any stream in order, key by key: the plan; with operator.py (state and timers),
               packing.py (rows of a key travel as one), keyed.py (one key, pure)
"""

from unisono.errors import EnvironmentLacks

try:
    from unisono.spark.in_order import in_order
    from unisono.spark.source import UnisonoSource
except ImportError as error:
    raise EnvironmentLacks(
        f"unisono.spark needs PySpark ({error}): pip install 'unisono[spark]'"
    ) from error

__all__ = ["UnisonoSource", "in_order"]
