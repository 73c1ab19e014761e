"""What may be asked of the database: typed, bounded messages. No SQL comes from the wire.

To add a transaction, add a struct here and its statements to `statements`. Values are bound as
parameters. What does not decode is refused, with a reason, by every replica alike.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from unisono.errors import UNDECODABLE, BadInput

Name = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_-]{1,40}$")]
Quantity = Annotated[int, Meta(ge=1, le=1_000_000)]


class Order(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="order"):
    """A customer orders; accepted if that many are in stock."""

    item: Name
    customer: Name
    quantity: Quantity


class Restock(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="restock"):
    """Goods have come in."""

    item: Name
    quantity: Quantity


class Stocktake(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="stocktake"):
    """Somebody has counted: from here on there are this many."""

    item: Name
    counted: Annotated[int, Meta(ge=0, le=1_000_000)]


Transaction = Order | Restock | Stocktake
Statement = tuple[str, tuple[object, ...]]

_ENCODER = msgspec.json.Encoder()
_DECODER: msgspec.json.Decoder[Transaction] = msgspec.json.Decoder(Transaction)


def encode(transaction: Transaction) -> bytes:
    return _ENCODER.encode(transaction)


def decode(payload: bytes) -> Transaction:
    """The transaction, or BadInput that says what is wrong with it."""
    try:
        return _DECODER.decode(payload)
    except UNDECODABLE as error:
        raise BadInput(f"not a transaction: {error}") from None


def statements(event_id: str, category: str, transaction: Transaction) -> list[Statement]:
    """What the database has to do. Triggers do the rest (schema.py)."""
    item = transaction.item
    known: Statement = ("INSERT OR IGNORE INTO stock VALUES (?, ?, 0)", (category, item))
    if isinstance(transaction, Order):
        order = (
            "INSERT INTO orders SELECT ?, ?, ?, ?, ?, "
            "coalesce((SELECT quantity FROM stock WHERE category = ? AND item = ?), 0) >= ?"
        )
        wanted = transaction.quantity
        row = (event_id, category, item, transaction.customer, wanted, category, item, wanted)
        return [(order, row)]
    if isinstance(transaction, Restock):
        change = "UPDATE stock SET quantity = quantity + ? WHERE category = ? AND item = ?"
        return [known, (change, (transaction.quantity, category, item))]
    change = "UPDATE stock SET quantity = ? WHERE category = ? AND item = ?"
    return [known, (change, (transaction.counted, category, item))]
