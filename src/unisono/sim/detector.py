"""The application of the demonstration: a detector of event patterns (thesis section 3.5.2)."""

from __future__ import annotations

from collections.abc import Iterable

from unisono.core.events import Delivery


class PatternDetector:
    """Looks for the kinds of `pattern` one after the other, without overlap.

    It takes its untagged notifications in order; a detection is the ids of the matched events.
    """

    def __init__(self, pattern: str) -> None:
        self._pattern = [kind.encode() for kind in pattern]
        self._matched: list[str] = []

    def take(self, delivery: Delivery) -> tuple[str, ...] | None:
        """The detection that this notification completes, if it does."""
        if not delivery.in_order or delivery.payload != self._pattern[len(self._matched)]:
            return None
        self._matched.append(delivery.id)
        if len(self._matched) < len(self._pattern):
            return None
        found, self._matched = tuple(self._matched), []
        return found


def agreement(detections: Iterable[Iterable[str]]) -> float:
    """Detections found by all over detections found by any; 1 when there are none."""
    sets = [set(found) for found in detections]
    anyone = set().union(*sets)
    return len(set.intersection(*sets)) / len(anyone) if anyone else 1.0
