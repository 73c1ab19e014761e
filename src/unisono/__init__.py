"""Unisono: every subscriber hears the same events, in the same order, over any bus - and can prove
it.

    import unisono

    async with unisono.connect("memory://", order="total") as bus:
        await bus.subscribe("a", "b")
        await bus.publish("a", b"hello")
        async for event in bus:
            print(event.topic, event.payload, event.status, event.latency_us)
            break
"""

from unisono.core.events import Delivery, Status
from unisono.core.limits import Limits
from unisono.core.predicate import BadPredicate
from unisono.errors import (
    BadInput,
    BusClosed,
    EnvironmentLacks,
    NotAcknowledged,
    UnisonoError,
    Unsupported,
)
from unisono.net.bus import Bus, Receipt
from unisono.net.connect import Connection, connect
from unisono.qos.fifo.options import Fifo
from unisono.qos.reliable.options import Reliability
from unisono.qos.total_order.options import Total
from unisono.version import unisono_version

__version__ = unisono_version()

__all__ = [
    "connect",
    "Connection",
    "Bus",
    "Receipt",
    "Delivery",
    "Status",
    "Limits",
    "Reliability",
    "Fifo",
    "Total",
    "UnisonoError",
    "BadInput",
    "BadPredicate",
    "Unsupported",
    "EnvironmentLacks",
    "BusClosed",
    "NotAcknowledged",
    "__version__",
]
