"""Who has told what it holds, in the present view, and whether that is enough to go on.

A topic's newest state is known when, for every earlier view that may matter, the topic's manager in
it has told (nothing was said in that view that it did not know), or a majority of the holders.
"""

from __future__ import annotations

from unisono.qos.total_order.order import ranking
from unisono.qos.views import Past, View, majority


class Survey:
    """The reports on one view."""

    def __init__(self, view: View) -> None:
        self._view = view
        self.reports: set[str] = set()
        self.completed = 0  # the newest view known to be complete

    def holders(self, topic: str, members: tuple[str, ...]) -> tuple[str, ...]:
        """The manager of a topic and its copies."""
        ranked = ranking(topic, members) if self._view.spread else members
        return ranked[: self._view.replicas]

    @property
    def _chain(self) -> list[Past]:
        return [past for past in self._view.chain if past.number >= self.completed]

    def knows(self, topic: str) -> bool:
        """Whether what has been told about this topic includes its newest state."""
        for past in self._chain:
            holders = self.holders(topic, past.members)
            told = sum(map(self.reports.__contains__, holders))
            if holders[0] not in self.reports and told < majority(len(holders)):
                return False
        return True

    @property
    def knows_all(self) -> bool:
        """Whether that holds for any topic, heard of or not."""
        for past in self._chain:
            holders = min(self._view.replicas, len(past.members))
            silent = sum(member not in self.reports for member in past.members)
            if silent > holders - majority(holders):
                return False
        return True
