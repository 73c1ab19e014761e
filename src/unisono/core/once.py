"""Events whose publisher chose the id: notified once, however often they are published.

Such an id has a slash, which no other has. Whoever may have to publish something again, because it
cannot know whether it did before it crashed, names it by what it is made of.
"""

from __future__ import annotations

import re

from unisono.errors import BadInput

_OWN = re.compile(r"[A-Za-z0-9._:-]+(/[A-Za-z0-9._:-]+)+")
_CHARS = 200


def check_own(event_id: str) -> str:
    """The id, or BadInput that says what is wrong with it."""
    if not isinstance(event_id, str) or len(event_id) > _CHARS or not _OWN.fullmatch(event_id):
        raise BadInput(
            f"{event_id!r} is no event id of one's own: at most {_CHARS} letters, digits and "
            ". _ : - with a slash between parts, such as alerts/17/3"
        )
    return event_id


def is_own(event_id: str) -> bool:
    return "/" in event_id


class Recent:
    """The ids that were seen last. At the bound the first is forgotten."""

    def __init__(self, bound: int) -> None:
        self._bound = bound
        self._seen: dict[str, None] = {}

    def again(self, event_id: str) -> bool:
        """Whether it was seen; from now on it was."""
        if event_id in self._seen:
            return True
        self._seen[event_id] = None
        if len(self._seen) > self._bound:
            del self._seen[next(iter(self._seen))]
        return False
