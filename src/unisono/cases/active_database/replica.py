"""A replica: deliveries in, transactions applied; late ones rolled back to, and replayed."""

from __future__ import annotations

from collections import Counter

from unisono.cases.active_database.database import IN_MEMORY, Database
from unisono.cases.active_database.journal import Entry, Journal
from unisono.cases.active_database.transactions import decode, statements
from unisono.core.events import Delivery
from unisono.errors import BadInput

HORIZON = 4096  # transactions that can still be undone


class Replica:
    """One copy of the database.

    With `eager` the database follows every delivery at once. Otherwise it follows when `sync` is
    called, so that many late transactions cost one rollback; the counters are the same.
    """

    def __init__(
        self, path: str = IN_MEMORY, *, horizon: int = HORIZON, eager: bool = True
    ) -> None:
        self.database = Database(path)
        self._journal = Journal()
        self._horizon = horizon
        self._eager = eager
        self._clean = 0  # the database agrees with the journal up to here
        self.rollbacks = 0  # transactions that had a place before others
        self.undone = 0  # transactions that were rolled back for them, to be replayed
        self.refused: Counter[str] = Counter()  # deliveries that changed nothing, by reason

    @property
    def taken(self) -> int:
        """Transactions in the journal, the final ones included."""
        return len(self._journal)

    def take(self, delivery: Delivery) -> int:
        """A delivery; returns how many transactions had to be rolled back for it."""
        if delivery.stamp is None:
            raise BadInput(f"{delivery.id} has no stamp; replicas need an ordered bus")
        try:
            what = decode(delivery.payload)
        except BadInput:
            self.refused["not a transaction"] += 1
            return 0
        journal = self._journal
        entry = Entry(delivery.id, delivery.topic, delivery.stamp, what)
        at = journal.place(entry)
        if at is None:  # this replica is wrong from here on: it needs a copy of another
            self.refused["before the horizon"] += 1
            return 0
        depth = len(journal) - at
        self.rollbacks += depth > 0
        self.undone += depth
        journal.insert(at, entry)
        self._clean = min(self._clean, at)
        if self._eager:
            self.sync()
        if len(journal.entries) >= 2 * self._horizon:
            self.sync()
            journal.settle(self._horizon)
            self.database.forget(journal.final)
        return depth

    def sync(self) -> None:
        """Roll the database back to where the journal has changed, and replay from there."""
        database = self.database
        database.undo(database.applied - self._clean)
        for entry in self._journal.since(self._clean):
            database.apply(entry.event_id, statements(entry.event_id, entry.topic, entry.what))
        self._clean = database.applied

    def sha256(self, category: str | None = None) -> str:
        """Equal for replicas that hold the same; with a category, for all that hold it."""
        self.sync()
        return self.database.sha256(category)

    def close(self) -> None:
        self.database.close()
