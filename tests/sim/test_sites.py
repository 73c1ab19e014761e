"""Links between sites: who is near, who is far, and what an uplink costs."""

from __future__ import annotations

from statistics import fmean

from hypothesis import given
from hypothesis import strategies as st

from unisono.sim.channels import SiteLinks

SITES = {"a1": "a", "a2": "a", "b1": "b"}


def delays(links: SiteLinks, source: str, target: str) -> list[int]:
    return [links.arrival_us(source, target, at) - at for at in range(0, 400_000_000, 1_000_000)]


def test_near_is_fast_and_far_is_slow() -> None:
    links = SiteLinks(SITES, 1)
    near, far = delays(links, "a1", "a2"), delays(links, "a1", "b1")
    assert 400 < fmean(near) < 600 and max(near) < min(1_500, min(far))
    assert 19_000 < fmean(far) < 24_000 and min(far) >= 1_000
    assert links.arrival_us("a1", "a1", 7) == 7
    assert links.sent == 800


@given(st.lists(st.tuples(st.sampled_from(["a2", "b1"]), st.integers(0, 50_000)), max_size=30))
def test_links_are_fifo(messages: list[tuple[str, int]]) -> None:
    links = SiteLinks(SITES, 1, uplink_kbit_s=1000)
    last: dict[str, int] = {}
    now = 0
    for target, gap in messages:
        now += gap
        at = links.arrival_us("a1", target, now, 100)
        assert at > last.get(target, 0)
        last[target] = at


def test_an_uplink_sends_one_message_after_the_other() -> None:
    """1000 B and 40 B of headers at 832 kbit/s are 10 ms; the second waits for the first."""
    free, busy = SiteLinks(SITES, 3), SiteLinks(SITES, 3, uplink_kbit_s=832)
    plain = [free.arrival_us("a1", "b1", 0), free.arrival_us("a2", "b1", 0)]
    assert busy.arrival_us("a1", "b1", 0, 1000) == plain[0] + 10_000
    assert busy.arrival_us("a2", "b1", 0, 1000) == plain[1] + 10_000, "each node has its own"
    later = [links.arrival_us("a1", "a2", 0, 1000) for links in (free, busy)]
    assert later[1] == later[0] + 20_000
    assert busy.busy_us == {"a1": 20_000, "a2": 10_000}
