"""What the clients of the case study do, drawn at random."""

from __future__ import annotations

from random import Random

from unisono.cases.active_database.transactions import Order, Restock, Stocktake, Transaction

_ITEMS = 5  # per category
_CUSTOMERS = 20


def random_transaction(rng: Random) -> Transaction:
    """Mostly orders; now and then goods come in, rarely somebody counts."""
    item = f"item{rng.randrange(_ITEMS)}"
    kind = rng.random()
    if kind < 0.7:
        return Order(item, f"customer{rng.randrange(_CUSTOMERS)}", rng.randint(1, 10))
    if kind < 0.97:
        return Restock(item, rng.randint(1, 30))
    return Stocktake(item, rng.randint(0, 50))
