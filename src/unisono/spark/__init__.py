"""Events in Spark: in order out of a bus, and back.

source.py      `format("unisono")`: streams of events, journals and traces as batches
sink.py        rows onto the bus, once each
collector.py   the process that fills a source's journal
options.py     what can be asked for
tables.py      traces as batches
"""

from unisono.errors import EnvironmentLacks

try:
    from unisono.spark.source import UnisonoSource
except ImportError as error:
    raise EnvironmentLacks(
        f"unisono.spark needs PySpark ({error}): pip install 'unisono[spark]'"
    ) from error

__all__ = ["UnisonoSource"]
