"""Simulated internets: exact sizes, the shape of both levels, routes, two upstreams, crashes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from functools import cache, reduce
from heapq import heappop, heappush
from itertools import pairwise
from math import exp, sqrt
from random import Random
from statistics import fmean, median

import msgspec
import pytest
import rustworkx as rx
from hypothesis import given, settings
from hypothesis import strategies as st
from support.seeds import seed_range

from unisono.errors import BadInput
from unisono.sim.outages import Outage, Rhythm, link_crashes, node_crashes
from unisono.sim.routes import Link, Topology
from unisono.sim.topologies import DELAYS_US, Internet, build, grow_systems, link_bounds

Pairs = Sequence[tuple[int, int]]
TWO_HOURS_S = 7200


@st.composite
def internets(draw: st.DrawFn, most_nodes: int = 160) -> Internet:
    systems = draw(st.integers(2, 9))
    upstreams = draw(st.integers(1, min(2, systems - 1)))
    nodes = draw(st.integers(7 * systems, max(most_nodes, 8 * systems)))
    least, most = link_bounds(nodes, systems, upstreams)
    return Internet(
        nodes=nodes,
        systems=systems,
        edges=draw(st.integers(least, most)),
        seed=draw(st.integers(0, 10_000)),
        upstreams=upstreams,
    )


@cache
def paper(seed: int, upstreams: int = 1) -> Topology:
    """The paper's 300 nodes, 8 systems and 500 links. Shared: leave no link down."""
    return build(Internet(seed=seed, upstreams=upstreams))


def parts(size: int, pairs: Iterable[tuple[int, int]]) -> int:
    """How many parts the network falls into. Written anew: it judges what rustworkx says."""
    leader = list(range(size))

    def find(node: int) -> int:
        while leader[node] != node:
            leader[node] = node = leader[leader[node]]
        return node

    for a, b in pairs:
        leader[find(a)] = find(b)
    return sum(find(node) == node for node in range(size))


def ends(topology: Topology, down: Iterable[int] = ()) -> Pairs:
    gone = set(down)
    return [(a, b) for at, (a, b, *_) in enumerate(topology.links) if at not in gone]


def transit(topology: Topology) -> dict[tuple[int, int], int]:
    """Linked systems -> the link."""
    return {
        (topology.system_of[link.a], topology.system_of[link.b]): at
        for at, link in enumerate(topology.links)
        if link.level == "transit"
    }


# --- what is drawn ---------------------------------------------------------------------------


@given(internets())
@settings(max_examples=60, deadline=None)
def test_sizes_are_exact_and_all_are_connected(internet: Internet) -> None:
    topology = build(internet)
    assert len(topology.hosts) == len(topology.system_of) == internet.nodes
    pairs = ends(topology)
    assert len({frozenset(pair) for pair in pairs}) == len(pairs) == internet.edges
    assert parts(internet.nodes, pairs) == 1
    sizes = Counter(topology.system_of)
    assert len(sizes) == internet.systems and max(sizes.values()) - min(sizes.values()) <= 1
    for system in sizes:
        inside = [
            (a, b) for a, b in pairs if topology.system_of[a] == topology.system_of[b] == system
        ]
        assert parts(internet.nodes, inside) == internet.nodes - sizes[system] + 1


@pytest.mark.seeded
@pytest.mark.parametrize("upstreams", [1, 2])
def test_both_bounds_on_links_are_kept_by_every_seed(upstreams: int) -> None:
    for systems in (3, 4, 8, 12):
        for edges in link_bounds(8 * systems, systems, upstreams):
            for seed in seed_range(10):
                internet = Internet(
                    nodes=8 * systems, systems=systems, edges=edges, seed=seed, upstreams=upstreams
                )
                assert len(build(internet).links) == edges


@given(internets())
@settings(max_examples=40, deadline=None)
def test_levels_are_linked_as_they_should_be(internet: Internet) -> None:
    topology = build(internet)
    above = {"gateway": "core", "access": "gateway", "leaf": "access"}
    uplinks = Counter[int]()
    for a, b, delay_us, level in topology.links:
        low, high = DELAYS_US[level]
        assert low <= delay_us <= high
        within = topology.system_of[a] == topology.system_of[b]
        levels = (topology.level_of[a], topology.level_of[b])
        if level in ("transit", "core"):
            assert levels == ("core", "core") and within == (level == "core")
        else:
            assert within and levels == (above[level], level)
            uplinks[b] += 1
    for node, level in enumerate(topology.level_of):
        if level in ("access", "leaf"):
            assert 1 <= uplinks[node] <= 2
        elif level == "gateway":
            assert uplinks[node] >= 1
    cores = Counter(
        topology.system_of[node] for node in topology.hosts if topology.level_of[node] == "core"
    )
    meshes = Counter(topology.system_of[link.a] for link in topology.links if link.level == "core")
    assert all(meshes[system] == count * (count - 1) // 2 for system, count in cores.items())


def test_the_papers_setting() -> None:
    """What is left of 500 links goes to gateways; below them are trees, but for a few links."""
    for seed in range(10):
        topology = paper(seed)
        assert (len(topology.hosts), len(topology.links)) == (300, 500)
        assert len(set(topology.system_of)) == 8
        degrees = Counter(node for pair in ends(topology) for node in pair)
        leaves = [degrees[node] for node in topology.hosts if topology.level_of[node] == "leaf"]
        assert len(leaves) >= 120 and fmean(leaves) < 1.1


def test_the_busiest_devices_are_near_the_edge() -> None:
    """The heuristically optimal shape: access routers differ widely, the core is even."""
    spread: dict[str, list[int]] = defaultdict(list)
    for seed in range(10):
        topology = paper(seed)
        degrees = Counter(node for pair in ends(topology) for node in pair)
        for node in topology.hosts:
            spread[topology.level_of[node]].append(degrees[node])
    assert max(spread["access"]) >= 4 * median(spread["access"])
    assert max(spread["core"]) <= 2 * median(spread["core"])


def test_among_systems_the_richest_have_most() -> None:
    """Degrees of positive-feedback preference, against links drawn evenly between as many."""
    shares, even, clubs = [], [], []
    for seed in range(20):
        pairs = grow_systems(100, 1, Random(seed))
        degrees = Counter(node for pair in pairs for node in pair)
        rich = [node for node, _ in degrees.most_common(10)]
        shares.append(sum(degrees[node] for node in rich) / (2 * len(pairs)))
        clubs.append(sum(a in rich and b in rich for a, b in pairs))
        rng = Random(seed)
        drawn = Counter(node for _ in pairs for node in rng.sample(range(100), 2))
        even.append(sum(count for _, count in drawn.most_common(10)) / (2 * len(pairs)))
        assert max(degrees.values()) >= 5 * median(degrees.values())
    assert fmean(shares) > 0.4 > 0.25 > fmean(even)
    assert fmean(clubs) > 25, "of the 45 pairs of rich ones"


def test_a_system_comes_with_the_models_number_of_links() -> None:
    """2 links with probability 0.3, else 3: 2.7 a system; in 100 systems few are linked twice."""
    counts = [len(grow_systems(100, 1, Random(seed))) for seed in range(50)]
    expected, deviation = 2.5 + 97 * 2.7, sqrt(97 * 0.3 * 0.7 / 50)
    assert abs(fmean(counts) - expected) < 5 * deviation
    ones = fmean(
        sum(
            count == 1
            for count in Counter(
                node for pair in grow_systems(100, 1, Random(seed)) for node in pair
            ).values()
        )
        for seed in range(20)
    )
    assert 15 < ones < 40, "of the 40 % that come with one link some get more later"


def test_a_seed_draws_one_topology() -> None:
    for upstreams in (1, 2):
        again = build(Internet(seed=5, upstreams=upstreams))
        assert again.links == paper(5, upstreams).links
        assert again.links != paper(6, upstreams).links


def test_nothing_depends_on_the_order_of_sets() -> None:
    code = (
        "from unisono.core.entropy import digest\n"
        "from unisono.sim.outages import link_crashes, node_crashes\n"
        "from unisono.sim.topologies import Internet, build\n"
        "t = build(Internet(seed=3, upstreams=2))\n"
        "routes = [t.route(a, b) for a in range(0, 300, 7) for b in range(0, 300, 5) if a != b]\n"
        "nodes = [t.name_of(n) for n in t.hosts]\n"
        "print(digest(t.links, routes, list(link_crashes(t, 3, 7200)),\n"
        "    list(node_crashes(nodes, 3, 7200, steady=set(nodes[:9])))))\n"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code],
            check=True,
            capture_output=True,
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
        ).stdout
        for hash_seed in ("1", "2")
    }
    assert len(outputs) == 1 and outputs != {b""}


# --- routes ----------------------------------------------------------------------------------


Cost = tuple[int, int, int, int]  # links of leaves, of access routers, of gateways; delay


def cost(delay_us: int, level: str) -> Cost:
    return (level == "leaf", level == "access", level == "gateway", delay_us)


def plus(one: Cost, other: Cost) -> Cost:
    return (one[0] + other[0], one[1] + other[1], one[2] + other[2], one[3] + other[3])


def distances(topology: Topology, source: int) -> dict[int, Cost]:
    neighbours = defaultdict(list)
    for a, b, delay_us, level in topology.links:
        neighbours[a].append((b, cost(delay_us, level)))
        neighbours[b].append((a, cost(delay_us, level)))
    best: dict[int, Cost] = {source: (0, 0, 0, 0)}
    queue = [(best[source], source)]
    while queue:
        so_far, node = heappop(queue)
        if so_far == best[node]:
            for other, step in neighbours[node]:
                new = plus(so_far, step)
                if other not in best or new < best[other]:
                    best[other] = new
                    heappush(queue, (new, other))
    return best


def check_routes(topology: Topology, source: int) -> None:
    shortest = distances(topology, source)
    links = {frozenset((a, b)): cost(delay_us, level) for a, b, delay_us, level in topology.links}
    height = {"leaf": 0, "access": 1, "gateway": 2, "core": 3}
    for target in topology.hosts:
        assert topology.delay_us(source, target) == shortest[target][3]
        assert topology.delay_us(target, source) == shortest[target][3]
        if source == target:
            continue
        route = topology.route(source, target)
        assert route == topology.route(target, source)[::-1]
        way = (source, *route, target)
        assert len(set(way)) == len(way)
        hops = [frozenset(pair) for pair in pairwise(way)]
        assert reduce(plus, (links[hop] for hop in hops)) == shortest[target]
        heights = [height[topology.level_of[node]] for node in way]
        top = heights.index(max(heights))
        assert heights[:top] == sorted(heights[:top])
        assert heights[top:] == sorted(heights[top:], reverse=True)
        used = [frozenset(topology.links[at][:2]) for at in topology.links_of(source, target)]
        assert used == hops
        assert topology.path_of(source, target) == tuple(map(topology.name_of, route))


@given(internets(most_nodes=100), st.randoms(use_true_random=False))
@settings(max_examples=25, deadline=None)
def test_routes_are_shortest_and_the_same_both_ways(internet: Internet, rng: Random) -> None:
    topology = build(internet)
    check_routes(topology, rng.choice(topology.hosts))


def test_routes_of_the_papers_setting_are_shortest() -> None:
    for source in range(0, 300, 37):
        check_routes(paper(1), source)


@given(st.randoms(use_true_random=False))
@settings(max_examples=10, deadline=None)
def test_equally_short_routes_do_not_confuse(rng: Random) -> None:
    """A grid where all links take equally long has thousands of shortest routes."""
    side = 6
    device = rng.sample(range(side * side), side * side)
    links = [
        Link(device[at], device[at + step], 1000, "core")
        for at in range(side * side)
        for step in (1, side)
        if (at % side < side - 1 if step == 1 else at < side * (side - 1))
    ]
    topology = Topology(links, [0] * side**2, ["core"] * side**2)
    for source in topology.hosts:
        check_routes(topology, source)


def test_names_tell_devices_apart() -> None:
    topology = paper(1)
    assert len({topology.name_of(node) for node in topology.hosts}) == 300
    assert not topology.path_of(4, 4) and not topology.route(4, 4) and not topology.links_of(4, 4)


@given(internets(most_nodes=90), st.randoms(use_true_random=False))
@settings(max_examples=25, deadline=None)
def test_a_pair_is_cut_off_when_a_link_of_its_route_is_down(
    internet: Internet, rng: Random
) -> None:
    topology = build(internet)
    down = set(rng.sample(range(internet.edges), rng.randint(0, min(30, internet.edges))))
    pairs = [rng.sample(topology.hosts, 2) for _ in range(60)]
    for link in down:
        topology.crash(link)
        topology.crash(link)  # what is down stays so
    cut = [not topology.alive(a, b) for a, b in pairs]
    assert cut == [not down.isdisjoint(topology.links_of(a, b)) for a, b in pairs]
    assert all(topology.alive(a, a) for a, _ in pairs)
    for link in down:
        topology.repair(link)
    assert all(topology.alive(a, b) for a, b in pairs)


@given(internets())
@settings(max_examples=25, deadline=None)
def test_neighbouring_systems_use_their_own_link(internet: Internet) -> None:
    """From every device of one to every device of the other; and systems keep to themselves."""
    topology = build(internet)
    levels = [link.level for link in topology.links]
    own = transit(topology)
    own |= {(b, a): link for (a, b), link in own.items()}
    for a in topology.hosts[::3]:
        for b in topology.hosts[::2]:
            systems = topology.system_of[a], topology.system_of[b]
            crossed = [link for link in topology.links_of(a, b) if levels[link] == "transit"]
            if systems in own:
                assert crossed == [own[systems]]
            elif systems[0] == systems[1]:
                assert not crossed


# --- two upstreams ---------------------------------------------------------------------------


@pytest.mark.seeded
def test_two_upstreams_over_two_border_routers() -> None:
    for seed in seed_range(30):
        topology = build(Internet(nodes=120, systems=10, edges=190, seed=seed, upstreams=2))
        neighbours, borders = defaultdict(set), defaultdict(set)
        for (one, other), link in transit(topology).items():
            a, b, *_ = topology.links[link]
            neighbours[one].add(other)
            neighbours[other].add(one)
            borders[one].add(a)
            borders[other].add(b)
        assert min(map(len, neighbours.values())) >= 2
        assert min(map(len, borders.values())) >= 2


def check_any_one_link(systems: int, pairs: Pairs) -> None:
    for lost in pairs:
        assert parts(systems, [pair for pair in pairs if pair != lost]) == 1, f"without {lost}"


@given(st.integers(3, 60), st.integers(0, 10_000))
@settings(max_examples=150, deadline=None)
def test_no_single_link_between_systems_separates(systems: int, seed: int) -> None:
    check_any_one_link(systems, grow_systems(systems, 2, Random(seed)))


@pytest.mark.seeded
def test_one_upstream_is_separated_by_single_links() -> None:
    """The same check fails without the option."""
    separated = 0
    for seed in seed_range(20):
        try:
            check_any_one_link(8, grow_systems(8, 1, Random(seed)))
        except AssertionError:
            separated += 1
    assert separated > 5


def test_with_two_upstreams_neighbours_carry_on_without_any_one_link() -> None:
    topology = paper(3, 2)
    own = transit(topology)
    at = {system: node for node, system in enumerate(topology.system_of)}
    for lost in own.values():
        topology.crash(lost)
        reached = [(a, b) for a, b in own if topology.alive(at[a], at[b])]
        topology.repair(lost)
        assert len(reached) == len(own) - 1 and parts(8, reached) == 1


# --- crashes ---------------------------------------------------------------------------------


def check_schedule(
    topology: Topology, crashes: Iterable[Outage[int]], duration_s: float, rhythm: Rhythm
) -> None:
    """In order, of the right length, one at a time per link, and never cutting the network."""
    last_us = 0
    down: dict[int, int] = {}
    for at_us, link, until_us in crashes:
        assert last_us <= at_us < duration_s * 1e6, "in the order of time, before the end"
        last_us = at_us
        down = {other: until for other, until in down.items() if until >= at_us}
        assert link not in down, "crashed while it was down"
        assert rhythm.least_down_s <= (until_us - at_us) / 1e6 <= rhythm.most_down_s
        down[link] = until_us
        assert parts(len(topology.hosts), ends(topology, down)) == 1, f"cut at {at_us}"


@given(internets(most_nodes=60), st.integers(0, 1000))
@settings(max_examples=15, deadline=None)
def test_no_schedule_cuts_the_network(internet: Internet, seed: int) -> None:
    topology = build(internet)
    rhythm = Rhythm(mean_up_s=600, least_down_s=60, most_down_s=1200)  # two in three are down
    crashes = list(link_crashes(topology, seed, 2000, rhythm))
    check_schedule(topology, crashes, 2000, rhythm)
    assert crashes == list(link_crashes(topology, seed, 2000, rhythm))


def test_the_papers_schedule() -> None:
    crashes = list(link_crashes(paper(2), 2, TWO_HOURS_S))
    check_schedule(paper(2), crashes, TWO_HOURS_S, Rhythm())
    assert len(crashes) > 250
    bridges = {frozenset(pair) for pair in rx.bridges(paper(2).graph())}
    assert len(bridges) > 150
    assert bridges.isdisjoint(frozenset(paper(2).links[crash.what][:2]) for crash in crashes)


def test_the_check_finds_a_schedule_that_cuts(monkeypatch: pytest.MonkeyPatch) -> None:
    topology = paper(2)
    with pytest.raises(AssertionError, match="cut at"):
        check_schedule(
            topology, link_crashes(topology, 2, TWO_HOURS_S, partition=True), TWO_HOURS_S, Rhythm()
        )
    monkeypatch.setattr("unisono.sim.outages.rx.has_path", lambda *_: True)
    with pytest.raises(AssertionError, match="cut at"):
        check_schedule(topology, link_crashes(topology, 2, TWO_HOURS_S), TWO_HOURS_S, Rhythm())


def test_a_crash_that_was_not_carried_out_is_drawn_anew() -> None:
    """Two links side by side in a ring of three: never two down, yet all crash again and again."""
    links = [Link(0, 1, 1000, "core"), Link(1, 2, 1000, "core"), Link(2, 0, 1000, "core")]
    topology = Topology(links, [0, 0, 0], ["core"] * 3)
    rhythm = Rhythm(mean_up_s=10, least_down_s=20, most_down_s=20)
    crashes = list(link_crashes(topology, 1, 100_000, rhythm))
    check_schedule(topology, crashes, 100_000, rhythm)
    assert min(Counter(crash.what for crash in crashes).values()) > 1000
    free = list(link_crashes(topology, 1, 100_000, rhythm, partition=True))
    assert len(free) > 2 * len(crashes)


def gaps_s(crashes: Sequence[Outage[int]]) -> list[float]:
    """From the repair of a thing to its next crash."""
    back: dict[int, int] = {}
    gaps = []
    for at_us, what, until_us in crashes:
        gaps.append((at_us - back.get(what, 0)) / 1e6)
        back[what] = until_us
    return gaps


def check_rhythm(crashes: Sequence[Outage[int]]) -> None:
    gaps = gaps_s(crashes)
    downs = [(crash.until_us - crash.at_us) / 1e6 for crash in crashes]
    root = sqrt(len(gaps))
    assert len(gaps) > 5000
    assert abs(fmean(gaps) - 5000) < 4 * 5000 / root + 60  # long gaps are cut off at the end
    assert abs(fmean(gap > 5000 for gap in gaps) - exp(-1)) < 4 * 0.5 / root + 0.01
    assert 10 <= min(downs) < 30 and 1180 < max(downs) <= 1200
    assert abs(fmean(downs) - 605) < 4 * (1190 / sqrt(12)) / root


def test_times_between_crashes_have_the_papers_means() -> None:
    check_rhythm(list(node_crashes(range(40), 1, 1_000_000)))
    check_rhythm(list(link_crashes(paper(1), 1, 100_000, partition=True)))


def test_the_check_of_means_tells_start_to_start_from_up_time() -> None:
    """The other reading of "5000 s between failures" has 12 % less time up."""
    shorter = Rhythm(mean_up_s=5000 - 605)
    with pytest.raises(AssertionError):
        check_rhythm(list(node_crashes(range(40), 1, 1_000_000, shorter)))


def test_the_steady_do_not_crash() -> None:
    names = [f"n{number}" for number in range(50)]
    crashes = list(node_crashes(names, 4, 50_000))
    assert {crash.what for crash in crashes} == set(names)
    steady = {"n3", "n17"}
    rest = list(node_crashes(names, 4, 50_000, steady=steady))
    assert rest == [crash for crash in crashes if crash.what not in steady]
    assert crashes == sorted(crashes)
    inner = [at for at, link in enumerate(paper(1).links) if link.level != "transit"]
    crashed = {crash.what for crash in link_crashes(paper(1), 1, 50_000, steady=inner)}
    assert crashed and {paper(1).links[link].level for link in crashed} == {"transit"}


# --- what is refused -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"nodes": 50}, "8 systems have at least 7 each"),
        ({"nodes": 3}, "nodes: Expected `int` >= 14"),
        ({"systems": 1}, "systems: Expected"),
        ({"systems": "8"}, "systems: Expected `int`"),
        ({"edges": 333}, "have 334 to 703"),
        ({"edges": 704}, "have 334 to 703"),
        ({"edges": 340, "upstreams": 2}, "have 341 to"),
        ({"upstreams": 0}, "upstreams: Expected"),
        ({"upstreams": 3}, "upstreams: Expected"),
        ({"upstreams": 2, "systems": 2, "nodes": 40, "edges": 60}, "needs more than that many"),
        ({"seed": 1.5}, "seed: Expected `int`"),
    ],
)
def test_internets_that_cannot_be(given: dict[str, int], words: str) -> None:
    with pytest.raises(BadInput, match=words):
        Internet(**given)


def test_settings_can_come_from_a_file() -> None:
    table = {"nodes": 100, "systems": 4, "edges": 150}
    assert msgspec.convert(table, Internet) == Internet(nodes=100, systems=4, edges=150)
    with pytest.raises(msgspec.ValidationError, match="unknown field"):
        msgspec.convert({"node": 100}, Internet)
    with pytest.raises(msgspec.ValidationError, match="nodes"):
        msgspec.convert({"nodes": -1}, Internet)


def test_crashes_that_cannot_be() -> None:
    with pytest.raises(BadInput, match="mean_up_s"):
        Rhythm(mean_up_s=0)
    with pytest.raises(BadInput, match="more than most_down_s"):
        Rhythm(least_down_s=20, most_down_s=10)
    for duration_s in (0, -1, 1e10, float("nan")):
        with pytest.raises(BadInput, match="duration_s"):
            link_crashes(paper(1), 1, duration_s)
        with pytest.raises(BadInput, match="duration_s"):
            node_crashes([1], 1, duration_s)


def test_networks_that_cannot_be() -> None:
    with pytest.raises(BadInput, match="cannot reach"):
        Topology([Link(0, 1, 5, "core")], [0, 0, 0], ["core"] * 3)
    with pytest.raises(BadInput, match="a microsecond at least"):
        Topology([Link(0, 1, 0, "core")], [0, 0], ["core"] * 2)
    for pairs in ([(0, 1), (1, 0)], [(0, 1), (1, 1)]):
        with pytest.raises(BadInput, match="no two connect the same"):
            Topology([Link(a, b, 5, "core") for a, b in pairs], [0, 0], ["core"] * 2)
