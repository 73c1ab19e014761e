"""The one trace schema. Drivers write it, the Spark pipeline reads it, nothing else crosses over.

A trace is a folder of tables: `<table>.parquet|csv|ndjson`, or a folder `<table>/` of such parts,
so that several processes can record into one trace. Times are int64 microseconds of one clock.
`publications` and `deliveries` are enough to audit a system that uses nothing else of ours.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

ColumnType = Literal["string", "int64"]


class Column(NamedTuple):
    name: str
    type: ColumnType
    required: bool = True  # the column must exist
    nullable: bool = False  # its values may be null


PUBLICATIONS = "publications"
DELIVERIES = "deliveries"
SUBSCRIPTIONS = "subscriptions"
ACKNOWLEDGEMENTS = "acknowledgements"

TABLES: dict[str, tuple[Column, ...]] = {
    PUBLICATIONS: (
        Column("event_id", "string"),
        Column("topic", "string"),
        Column("publisher", "string"),
        Column("publisher_seq", "int64"),  # the publisher's own publishing order
        Column("published_us", "int64"),
        Column("size", "int64", required=False, nullable=True),
    ),
    DELIVERIES: (
        Column("subscriber", "string"),
        Column("position", "int64"),  # the subscriber's notification order, increasing
        Column("event_id", "string"),
        Column("delivered_us", "int64"),
        Column("status", "string", required=False, nullable=True),  # absent or null: in_order
    ),
    SUBSCRIPTIONS: (
        Column("subscriber", "string"),
        Column("topic", "string"),
        Column("from_us", "int64"),
        Column("until_us", "int64", nullable=True),  # null: still subscribed at the end
    ),
    ACKNOWLEDGEMENTS: (  # where it is there, only what is in it can be lost
        Column("event_id", "string"),
        Column("acknowledged_us", "int64"),
    ),
    # Tables of our own drivers; the audit does not need them.
    "stamps": (
        Column("event_id", "string"),
        Column("topic", "string"),
        Column("number", "int64"),
        Column("entries", "int64"),  # how many topics the stamp counts
        Column("requested_us", "int64"),
        Column("stamped_us", "int64"),
    ),
    "control": (
        Column("at_us", "int64"),
        Column("node", "string"),
        Column("kind", "string"),
        Column("detail", "string"),
    ),
    "faults": (
        Column("at_us", "int64"),
        Column("node", "string"),
        Column("kind", "string"),
        Column("detail", "string"),
    ),
}

IN_ORDER = "in_order"
OUT_OF_ORDER = "out_of_order"
LATE = "late"
GAP_SKIPPED = "gap_skipped"
DUPLICATE = "duplicate"
STATUSES = (IN_ORDER, OUT_OF_ORDER, LATE, GAP_SKIPPED, DUPLICATE)

# Deliveries over which order is judged: those that claim to be in order.
JUDGED = (IN_ORDER, LATE)

# The check that one order fits all subscribers. Who promises total-order promises this as well.
GLOBAL_ORDER = "global-order"
