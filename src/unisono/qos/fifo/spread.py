"""How much the delays of one publisher's events differ, and how long that is worth waiting.

A sample is the difference of the delays of two events that arrived one after the other: arrivals
are compared with arrivals, departures with departures, so clocks need not agree. Everything that
the scale is made of is in whole microseconds, so sums stay exact as samples come and go.

Whether the model fits is judged by what comes of it: of the events that were missing and then came,
how many came later than the latch allows for. If these are clearly more than were asked for, the
hold is also at least what Chebyshev's bound and the largest difference of the last thousand samples
or so take; the latch is still judged, so that the layer finds out when the model fits again.
"""

from __future__ import annotations

from collections import deque
from math import expm1, sqrt

import msgspec

from unisono.models.latch import cantelli, latch, tail
from unisono.qos.fifo.options import Fifo

REMEMBERED = 1000  # samples over which the safe choice forgets
_KEPT = 1 - 1 / REMEMBERED
JUDGED = 20  # outcomes without which nothing is judged
OUTCOMES = 400  # when there are more, they count half
UNLIKELY = 0.01  # of the allowed violations: what would have to be so late is for others


class SpreadSnapshot(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """All that a spread knows; sums are made anew."""

    samples: list[int]
    seen: int
    variance: float
    furthest: float
    came: int
    late: int


class Spread:
    """The last samples, their scale, and whether the model fits."""

    __slots__ = (
        "_absolute",
        "_bound",
        "_furthest",
        "_options",
        "_samples",
        "_seen",
        "_squares",
        "_variance",
        "_window",
        "came",
        "late",
    )

    def __init__(self, options: Fifo) -> None:
        self._options = options
        self._bound = round(options.hold_ms * 1000)
        self._window = options.window
        self._samples: deque[int] = deque()
        self._absolute = 0
        self._squares = 0
        self._seen = 0
        self._variance = 0.0  # over many samples
        self._furthest = 0.0
        self.came = 0  # in the time that the latch gives
        self.late = 0  # after that

    def snapshot(self) -> SpreadSnapshot:
        return SpreadSnapshot(
            list(self._samples), self._seen, self._variance, self._furthest, self.came, self.late
        )

    @classmethod
    def restore(cls, options: Fifo, kept: SpreadSnapshot) -> Spread:
        """The options may be others: of a shorter window, the last samples count."""
        spread = cls(options)
        spread._samples = deque(kept.samples[-options.window :])
        spread._absolute = sum(spread._samples)
        spread._squares = sum(size * size for size in spread._samples)
        spread._seen, spread._variance = kept.seen, kept.variance
        spread._furthest = kept.furthest
        spread.came, spread.late = kept.came, kept.late
        return spread

    def add(self, sample: int) -> None:
        """A difference. Beyond the longest hold, how far makes no difference: a step of the
        publisher's clock counts as one such sample."""
        size = -sample if sample < 0 else sample
        if size > self._bound:
            size = self._bound
        samples, square = self._samples, size * size
        samples.append(size)
        if len(samples) > self._window:
            gone = samples.popleft()
            self._absolute += size - gone
            self._squares += square - gone * gone
        else:
            self._absolute += size
            self._squares += square
        if self._seen < REMEMBERED:
            self._seen += 1
        self._variance += (square - self._variance) / self._seen
        furthest = self._furthest * _KEPT
        self._furthest = furthest if furthest > size else float(size)

    def outcome(self, late: bool) -> None:
        """Something that was missing has come, before its latch was over or not."""
        if late:
            self.late += 1
        else:
            self.came += 1
        if self.came + self.late > OUTCOMES:
            self.came //= 2
            self.late //= 2

    @property
    def scale_us(self) -> float:
        """b of the model; 0 before the first sample."""
        return self._absolute / (1.5 * len(self._samples)) if self._samples else 0.0

    @property
    def fits(self) -> bool:
        """False if clearly more are late than were allowed: by three standard deviations."""
        seen = self.came + self.late
        allowed = self._options.violation * seen
        return seen < JUDGED or self.late <= allowed + 3 * sqrt(allowed)

    def latch_us(self, delta_us: int, told: bool = True) -> int:
        """How long the rule holds an event that departed this long after the one that is missing.
        If nobody told of that one: it may just as well not be for us."""
        options, count = self._options, len(self._samples)
        if options.rule == "static":
            assert options.latch_ms is not None
            held = options.latch_ms * 1000
        elif not count:  # of what the record does not tell, nobody knows whether it is over
            held = options.first_ms * 1000 if told or not options.record else 0.0
        elif options.rule == "chebyshev":
            held = cantelli(options.violation, sqrt(self._squares / count)) - delta_us
        elif options.rule == "paper":
            held = latch(options.violation, delta_us, self.scale_us, "paper")
        else:
            held = self._conditional(delta_us, told, count)
        return min(max(0, round(held)), self._bound)

    def _conditional(self, delta_us: int, told: bool, count: int) -> float:
        """The scale is an estimate, from a few samples: a tail that is exponential, of a scale that
        is known so well, falls like (1 + x / n)^-n. So the promise is kept on average."""
        scale, violation = self.scale_us, self._options.violation
        if not scale or not (told or tail(delta_us, scale) > UNLIKELY * violation):
            return 0.0
        held = latch(violation, delta_us, scale)
        return scale * count * expm1(held / (scale * count))

    def hold_us(self, latch_us: int, delta_us: int) -> int:
        """How long to hold it: as the rule says, or longer where the model does not fit."""
        if self._options.rule != "conditional" or self.fits:
            return latch_us
        bound = cantelli(self._options.violation, sqrt(self._variance))
        safe = round(max(bound, self._furthest) - delta_us)
        return min(max(latch_us, safe), self._bound)
