"""What was missed comes; sites that cannot reach each other; the paper's rule alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from random import Random

import pytest
from support.seeds import seed_range, some

from unisono.core.effects import Arrive, Done
from unisono.ens.scribe.messages import (
    Cast,
    Contact,
    Fetched,
    Interest,
    Item,
    Known,
    Member,
    Reach,
    Ready,
    View,
    Views,
)
from unisono.ens.scribe.node import Mesh
from unisono.ens.scribe.options import Recover, Shape
from unisono.ens.scribe.scouts import Scouts
from unisono.ens.scribe.site import Site
from unisono.ens.scribe.trees import Tree, Trees
from unisono.sim.mesh import Flat, MeshWorld

TOPIC = "t"


class Domains:
    """Some domains of three processes each; all but the first process subscribe, or all but the
    first domain."""

    def __init__(
        self, seed: int, shape: Shape, domains: int = 6, publisher_apart: bool = False
    ) -> None:
        self.rng = Random(seed)
        self.net = Flat(seed)
        self.got: Counter[tuple[str, bytes]] = Counter()
        self.world = MeshWorld(self.net, shape, seed, self._arrive, coded=True)
        self.of = {f"d{d}-{n}": f"d{d}" for n in range(3) for d in range(domains)}
        self.publisher, *self.subscribers = self.of
        if publisher_apart:
            self.subscribers = [a for a in self.subscribers if self.of[a] != "d0"]
        self._beat_us = shape.beat_us
        for address, domain in self.of.items():
            self.world.start(address, domain, () if address == self.publisher else ("d0-0",))
            self.beats(1)
        self.beats(20)
        tickets = [self.world.subscribe(address, TOPIC) for address in self.subscribers]
        assert self.world.run_until(lambda: self.world.done.issuperset(tickets), 10**8)
        self.beats(20)

    def _arrive(self, address: str, topic: str, frame: bytes, now: int) -> None:
        self.got[address, frame] += 1

    def beats(self, count: int) -> None:
        self.world.run(self.world.now + count * self._beat_us)

    def cut(self, one: str, other: str) -> None:
        """No process of one domain reaches any of the other."""
        for a, b in ((a, b) for a in self.of for b in self.of):
            if (self.of[a], self.of[b]) == (one, other):
                self.net.cut.add(frozenset((a, b)))

    def missed(self, events: int) -> Iterator[tuple[str, int]]:
        """Publish one a beat; who did not get which."""
        for number in range(events):
            self.world.publish(self.publisher, TOPIC, b"%d" % number)
            self.beats(1)
        self.beats(60)
        for address in self.subscribers:
            for number in range(events):
                if self.got[address, b"%d" % number] != 1:
                    yield address, number


def a_row(seed: int) -> Domains:
    """Of six domains, in random order, each reaches only the next ones."""
    mesh = Domains(seed, Shape(trees=2, backups=1))
    order = [f"d{d}" for d in range(6)]
    mesh.rng.shuffle(order)
    for at, one in enumerate(order):
        for other in order[at + 2 :]:
            mesh.cut(one, other)
    mesh.beats(60)
    return mesh


@pytest.mark.seeded
@pytest.mark.parametrize("seed", seed_range(some(12)))
def test_events_pass_from_neighbour_to_neighbour(seed: int) -> None:
    """Sites that take themselves for the root unite, however long the way."""
    mesh = a_row(seed)
    assert not list(mesh.missed(20))
    roots = [
        site.site
        for node in mesh.world.nodes.values()
        for slot, site in node.sites.items()
        if slot == 0 and site.trees[TOPIC].root
    ]
    assert len(roots) == 1


def test_roots_on_their_own_would_miss_events(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Trees, "unite", lambda trees, turn: None)
    assert any(list(a_row(seed).missed(5)) for seed in range(6))


def behind_a_cut(seed: int, domain: str, publisher_apart: bool = False) -> Domains:
    """The coordinators of a domain reach no other domain, its third process does."""
    shape = Shape(trees=2, backups=0, keep_us=60_000_000)
    mesh = Domains(seed, shape, domains=4, publisher_apart=publisher_apart)
    coordinators = [a for a, of in mesh.of.items() if of == domain and mesh.world.nodes[a].sites]
    assert len(coordinators) == 2
    for address, of in mesh.of.items():
        if of != domain:
            mesh.net.cut.update(frozenset((address, other)) for other in coordinators)
    return mesh


@pytest.mark.parametrize("domain", ["d0", "d1"])  # the publisher's, and another
@pytest.mark.seeded
@pytest.mark.parametrize("seed", seed_range(some(8)))
def test_who_reaches_the_others_becomes_coordinator(seed: int, domain: str) -> None:
    """And what was published meanwhile comes."""
    mesh = behind_a_cut(seed, domain)
    assert not list(mesh.missed(40))
    active = {a for a, of in mesh.of.items() if of == domain and mesh.world.nodes[a].sites}
    assert f"{domain}-2" in active
    view = mesh.world.nodes[f"{domain}-2"].cluster.view
    assert view is not None and len(view.members) == 3
    settled = mesh.world.sent["Yield"]
    mesh.beats(200)
    assert mesh.world.sent["Yield"] - settled <= 1, "places are not passed to and fro"


@pytest.mark.seeded
@pytest.mark.parametrize("seed", [*seed_range(some(8)), 13, 14, 20, 21, 35])
def test_a_cluster_that_only_publishes_loses_nothing_either(seed: int) -> None:
    """Neither when its coordinators give up their places, nor when it is cut off for a while."""
    mesh = behind_a_cut(seed, "d0", publisher_apart=True)
    assert not list(mesh.missed(40))
    mesh = Domains(seed, Shape(trees=2, backups=0), domains=4, publisher_apart=True)
    for other in ("d1", "d2", "d3"):
        mesh.cut("d0", other)
        mesh.cut(other, "d0")
    for number in range(30):
        mesh.world.publish(mesh.publisher, TOPIC, b"cut %d" % number)
        mesh.beats(1)
    mesh.net.cut.clear()
    assert not list(mesh.missed(5))
    for address in mesh.subscribers:
        assert [mesh.got[address, b"cut %d" % number] for number in range(30)] == [1] * 30


def test_a_new_root_is_not_told_what_was_before() -> None:
    """Whoever was the root is its child now, and has much that the new one has not."""
    told = 0
    for seed in range(8):
        mesh = Domains(seed, Shape(trees=2, backups=0), domains=3)
        assert not list(mesh.missed(20))
        before = dict(mesh.got)
        mesh.world.start("new", f"new{seed}", ("d0-0",))
        mesh.beats(10)
        ticket = mesh.world.subscribe("new", TOPIC)
        mesh.beats(20)
        assert ticket in mesh.world.done
        told += sum(tree.root for tree in roots_of(mesh.world.nodes["new"]))
        assert mesh.got == before
    assert told > 0, "it was the root of something"


def roots_of(node: Mesh) -> list[Tree]:
    return [site.trees[TOPIC] for site in node.sites.values()]


@pytest.mark.parametrize("recover", ["none", "paper", "all"])
def test_who_is_the_root_no_more_asks_until_it_has_a_parent(recover: Recover) -> None:
    """The ring does not change again, and the first question is lost."""
    mesh = Domains(1, Shape(trees=1, backups=0, recover=recover))
    site = next(
        site
        for node in mesh.world.nodes.values()
        for site in node.sites.values()
        if site.trees[TOPIC].parent is not None
    )
    tree = site.trees[TOPIC]
    tree.parent, tree.root, tree.ready, tree.checked = None, False, True, site.ring.turns
    mesh.beats(10)
    assert site.trees[TOPIC].parent is not None


def test_coordinators_that_stay_would_miss_events(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Scouts, "best", lambda scouts, now: None)
    assert list(behind_a_cut(0, "d1").missed(5))


def test_two_that_take_each_other_for_the_parent_part_again() -> None:
    mesh = Domains(1, Shape(trees=1, backups=0))
    below = [
        site
        for node in mesh.world.nodes.values()
        for site in node.sites.values()
        if site.trees[TOPIC].parent is not None
    ]
    one, other = below[:2]
    for child, parent in ((one, other), (other, one)):
        tree = child.trees[TOPIC]
        tree.parent, tree.path, tree.ready = other_contact(parent), (parent.site,), False
        tree.children.clear()
    mesh.beats(20)
    assert all(site.trees[TOPIC].ready for site in below)
    assert not list(mesh.missed(5))


def other_contact(site: Site) -> Contact:
    return site._process.contact(site.slot)


def test_by_the_papers_rule_a_tree_is_fed_from_its_root_alone() -> None:
    """One message per child and tree; where trees feed each other there are more ways."""
    counts = {}
    for recover in ("paper", "all"):
        mesh = Domains(1, Shape(trees=2, backups=0, recover=recover))
        before = mesh.world.sent["Down"]
        assert not list(mesh.missed(10))
        counts[recover] = mesh.world.sent["Down"] - before
    assert counts["paper"] == 10 * 2 * 5, "ten events, two trees, five sites below each root"
    assert counts["all"] == counts["paper"], "and no more where nothing is missing"


def test_the_other_tree_is_enough() -> None:
    """A cut that takes one tree from a cluster takes nothing from its members."""
    mesh = Domains(2, Shape(trees=2, backups=0, recover="paper", silence=100))
    child = next(
        node
        for node in mesh.world.nodes.values()
        if 0 in node.sites and node.sites[0].trees[TOPIC].parent is not None
    )
    parent = child.sites[0].trees[TOPIC].parent
    assert parent is not None
    mesh.net.cut.add(frozenset((child.name.split("#")[0], parent.addresses[0])))
    assert not list(mesh.missed(10))


def test_a_parent_is_told_what_it_missed_and_fetches_it() -> None:
    """Figure 7: all ways into a site are cut, the ways out to its children are not."""
    told: Counter[str] = Counter()
    for seed in range(3):
        for recover in ("paper", "none"):
            mesh = Domains(seed, Shape(trees=2, backups=0, recover=recover, silence=100))
            inner = {
                site.site
                for node in mesh.world.nodes.values()
                for site in node.sites.values()
                if site.trees[TOPIC].children and not site.trees[TOPIC].root
            }
            for name in sorted(inner)[:1]:
                above = {
                    tree.parent.site
                    for node in mesh.world.nodes.values()
                    for site in node.sites.values()
                    if site.site == name and (tree := site.trees[TOPIC]).parent is not None
                    if tree.parent is not None
                }
                for other in above:
                    mesh.cut(name, other)
                    mesh.cut(other, name)
            told[recover] += len(list(mesh.missed(10)))
    assert told["paper"] < told["none"]


def test_a_subscription_is_answered_though_the_answer_was_lost() -> None:
    shape = Shape()
    net = Flat(1)
    world = MeshWorld(net, shape, 1, lambda *arrived: None)
    for number in range(4):
        world.start(f"n{number}", "rome", ("n0",) if number else ())
        world.run(world.now + 4 * shape.beat_us)
    ticket = world.subscribe("n3", TOPIC)
    net.loss = 1.0  # what was sent before arrives, the answers do not
    world.run(world.now + shape.beat_us)
    assert TOPIC in world.nodes["n0"].sites[0].trees.trees
    net.loss = 0.0
    assert world.run_until(lambda: ticket in world.done, 10 * shape.silence * shape.beat_us)


def test_an_event_for_a_thousand_members_looks_for_each_once() -> None:
    """The view is not searched for every one of them."""
    searched: Counter[str] = Counter()

    class Members(tuple[Member, ...]):
        def __iter__(self) -> Iterator[Member]:
            searched["times"] += 1
            return super().__iter__()

    members = Members(Member(f"n{number}", f"n{number}", True) for number in range(1000))
    node = Mesh("n0", "n0", "rome", Shape(), Random(1))
    node.start(0)
    node.cluster.views(View("rome", 1, members), "anyone", 0)
    for member in members:
        node.receive(member.address, Interest(member.name, 1, (TOPIC,)), 0)
    searched.clear()
    told = node.receive("n1", Cast(0, Item(TOPIC, "n1", 1, b"x")), 0)
    assert len(told) == 998
    assert not searched


@pytest.mark.parametrize("who", ["n1", "n2", "n4"])
def test_what_was_published_between_two_subscriptions_does_not_come(who: str) -> None:
    """Though it is a gap, and others have it."""
    shape = Shape()
    got: list[bytes] = []
    world = MeshWorld(Flat(1), shape, 1, lambda to, topic, frame, now: got.append(frame))
    for number in range(5):
        world.start(f"n{number}", "rome", ("n0",) if number else ())
        world.run(world.now + 4 * shape.beat_us)
    for number in range(3):
        ticket = world.subscribe(who, TOPIC)
        assert world.run_until(lambda: ticket in world.done, 20 * shape.beat_us)  # noqa: B023
        world.run(world.now + shape.beat_us)
        world.publish("n0", TOPIC, b"heard %d" % number)
        world.run(world.now + 8 * shape.beat_us)
        world.unsubscribe(who, TOPIC)
        world.run(world.now + shape.beat_us)
        world.publish("n0", TOPIC, b"not heard")
        world.run(world.now + shape.beat_us)
    assert got == [b"heard 0", b"heard 1", b"heard 2"]


def test_a_later_subscription_does_not_end_what_an_earlier_one_may_ask_for() -> None:
    """The answer to the second names what was published on the first topic meanwhile."""
    node = Mesh("n0", "n0", "rome", Shape(), Random(1), seeds=("c",), candidate=False)
    view = View("rome", 1, (Member("c", "c", True), Member("n0", "n0", False)))
    node.receive("c", Views(view), 0)
    node.subscribe("t", "first", 0)
    node.subscribe("u", "second", 0)
    for slot in (0, 1):
        told = node.receive("c", Ready(slot, 1, (("t", "s", 3),)), 1)
    assert Done("first") in told
    node.receive("c", Ready(0, 2, (("t", "s", 5),)), 2)
    arrived = node.receive("c", Fetched(tuple(Item("t", "s", n, b"") for n in (3, 4, 5))), 3)
    assert arrived == [Arrive("t", b"")] * 2


@pytest.mark.parametrize(("again", "others"), [("n0", 0), ("n0", 3), ("n1", 3)])
def test_a_guest_finds_back_when_its_only_node_was_restarted(again: str, others: int) -> None:
    """At the same address, or elsewhere with other clusters that know the way."""
    shape = Shape()
    got: list[tuple[str, bytes]] = []
    world = MeshWorld(Flat(1), shape, 1, lambda to, topic, frame, now: got.append((to, frame)))
    world.start("n0", "rome")
    for number in range(others):
        world.start(f"o{number}", f"oslo{number}", ["n0"])
        world.run(world.now + 4 * shape.beat_us)
    world.start("guest", "", ("n0",), candidate=False)
    world.run(world.now + 20 * shape.beat_us)
    world.subscribe("guest", TOPIC)
    world.run(world.now + 10 * shape.beat_us)
    world.crash("n0")
    world.run(world.now + 2 * shape.beat_us)
    world.start(again, "rome", ["o0"] if others else [])
    world.run(world.now + 60 * shape.beat_us)
    publisher = "o1" if others else again
    world.publish(publisher, TOPIC, b"x")
    world.run(world.now + 10 * shape.beat_us)
    assert got == [("guest", b"x")]
    assert world.nodes[again].cluster.leads


def test_a_guest_is_a_cluster_where_no_node_of_its_domain_is_left() -> None:
    shape = Shape()
    got: list[tuple[str, bytes]] = []
    world = MeshWorld(Flat(1), shape, 1, lambda to, topic, frame, now: got.append((to, frame)))
    world.start("n0", "rome")
    world.start("n1", "oslo", ["n0"])
    world.run(world.now + 20 * shape.beat_us)
    world.start("guest", "", ("n0",), candidate=False)
    world.run(world.now + 20 * shape.beat_us)
    world.subscribe("guest", TOPIC)
    world.crash("n0")
    world.run(world.now + 60 * shape.beat_us)
    world.publish("n1", TOPIC, b"x")
    world.run(world.now + 10 * shape.beat_us)
    assert got == [("guest", b"x")]


@pytest.mark.parametrize("trees", [1, 2])
def test_backups_that_want_nothing_themselves_lose_nothing(trees: int) -> None:
    """All coordinators of a cluster crash at once; guests of it and of a cluster below it get what
    was published until others take over, however many that are."""
    shape = Shape(trees=trees, backups=1)
    got: Counter[tuple[str, bytes]] = Counter()
    world = MeshWorld(Flat(1), shape, 1, lambda a, t, frame, now: got.update([(a, frame)]))
    for domain in ("d0", "d1", "d2"):
        for number in range(5):
            world.start(f"{domain}-{number}", domain, ["d0-0"] if world.nodes else [])
            world.run(world.now + 3 * shape.beat_us)
    guests = {"g1": "d1-0", "g2": "d2-0"}
    for guest, host in guests.items():
        world.start(guest, "", [host], candidate=False)
    world.run(world.now + 20 * shape.beat_us)
    tickets = [world.subscribe(guest, TOPIC) for guest in guests]
    assert world.run_until(lambda: world.done.issuperset(tickets), 10**8)
    world.run(world.now + 90 * shape.beat_us)
    for number in range(1000):
        if number == 200:
            for address in [a for a in world.nodes if a[:2] == "d1" and world.nodes[a].sites]:
                world.crash(address)
        world.publish("d0-0", TOPIC, b"%d" % number)
        world.run(world.now + shape.beat_us // 25)
    world.run(world.now + 60 * shape.beat_us)
    assert [got[guest, b"%d" % n] for guest in guests for n in range(1000)] == [1] * 2000


def until_heard_us(crashes: bool) -> int:
    """The last process of the root's domain ends, and another domain publishes: until all have
    it."""
    mesh = Domains(3, Shape(trees=1, backups=0))
    world = mesh.world
    root = next(
        a
        for a, node in world.nodes.items()
        if any(site.trees[TOPIC].root for site in node.sites.values())
    )
    of_root = [a for a, domain in mesh.of.items() if domain == mesh.of[root]]
    for address in of_root:
        if address != root:
            world.leave(address)
            mesh.beats(3)
    if crashes:
        world.crash(root)
    else:
        world.leave(root)
    publisher, *others = [a for a in mesh.subscribers if a not in of_root]
    begun = world.now
    world.publish(publisher, TOPIC, b"after")
    wanted = {(address, b"after") for address in others}
    assert world.run_until(lambda: wanted <= mesh.got.keys(), 10**8)
    return world.now - begun


def test_a_site_that_leaves_is_not_waited_for() -> None:
    assert until_heard_us(crashes=False) < 4 * Shape().beat_us < until_heard_us(crashes=True)


@pytest.mark.seeded
@pytest.mark.parametrize("seed", seed_range(some(8)))
def test_who_reaches_only_plain_members_is_helped_by_one(seed: int) -> None:
    """It tells them, they their coordinators, and one of them takes a place."""
    mesh = Domains(seed, Shape(trees=2, backups=0, keep_us=60_000_000), domains=4)
    world = mesh.world
    world.start("far", "d1", ("d0-0",))
    mesh.beats(20)
    ticket = world.subscribe("far", TOPIC)
    assert world.run_until(lambda: ticket in world.done, 10**8)
    world.publish(mesh.publisher, TOPIC, b"first")  # who has heard of it knows what it misses
    mesh.beats(5)
    (plain,) = [a for a, of in mesh.of.items() if of == "d1" and not world.nodes[a].sites]
    mesh.net.cut.update(frozenset(("far", a)) for a in mesh.of if a != plain)
    mesh.subscribers.append("far")
    assert not list(mesh.missed(60))
    assert world.nodes[plain].sites


@pytest.mark.seeded
@pytest.mark.parametrize("seed", seed_range(some(8)))
def test_who_does_not_reach_the_leader_gives_its_place_away_too(seed: int) -> None:
    """A coordinator hears neither the leader nor other domains; members do, but for one that hears
    no coordinator but this one."""
    mesh = Domains(seed, Shape(trees=2, backups=1, keep_us=60_000_000), domains=3)
    world = mesh.world
    for number in range(3):
        world.start(f"d1-{3 + number}", "d1", ("d0-0",))
        mesh.of[f"d1-{3 + number}"] = "d1"
        mesh.beats(4)
        mesh.subscribers.append(f"d1-{3 + number}")
        world.subscribe(mesh.subscribers[-1], TOPIC)
    world.publish(mesh.publisher, TOPIC, b"first")  # who has heard of it knows what it misses
    mesh.beats(20)
    fellows = [a for a, of in mesh.of.items() if of == "d1"]
    leader = next(a for a in fellows if world.nodes[a].cluster.leads)
    second = next(a for a in fellows if a != leader and world.nodes[a].sites)
    backed = {member.address for member in world.nodes[leader].cluster.coordinators}
    below = next(a for a in fellows if a not in backed)
    mesh.net.cut.update(frozenset((second, a)) for a in mesh.of if a not in fellows)
    mesh.net.cut.update((frozenset((second, leader)), frozenset((below, leader))))
    assert not list(mesh.missed(60))


def test_a_fellow_that_came_back_is_no_other_site() -> None:
    """It was a site of its own, and answers those who knock there. They do not reach more by it."""
    mesh = Domains(1, Shape(trees=2, backups=0), domains=2)
    nodes = mesh.world.nodes
    coordinator = next(a for a, node in nodes.items() if mesh.of[a] == "d1" and 1 in node.sites)
    fellow = next(a for a, of in mesh.of.items() if of == "d1" and a != coordinator)
    node = nodes[coordinator]
    scouts = node.sites[1].scouts
    scouts.lost(Contact("d1~x", 1, 0, (coordinator,)))
    assert scouts.where(node.sites[1].ring, (), node.now)
    for site in ("d0", "d1"):
        node.receive(fellow, Reach(1, coordinator, site, nodes[fellow].name), node.now)
    assert scouts.best(node.now + 10 * Shape().beat_us) is None


def test_a_rival_is_given_time_to_answer() -> None:
    """Many tell of it within a beat: that is no reason to take another site."""
    shape = Shape(trees=2, backups=0)
    mesh = Mesh("late", "there", "d", shape, Random(0))
    mesh.start(1_000_000)
    older = Contact("d", 0, 0, ("elsewhere",))

    def told(now: int) -> str:
        for sender in range(20):
            mesh.receive(f"x{sender}", Known(0, (older,)), now)
        assert mesh.cluster.view is not None
        return mesh.cluster.view.site

    beats = 0
    while told(mesh.now) == "d":
        mesh.tick(mesh.now + shape.beat_us)
        beats += 1
    assert beats == 2 * shape.silence


@pytest.mark.seeded
@pytest.mark.parametrize("seed", [*seed_range(some(8)), 1682910596])  # which ended as one site
def test_a_coordinator_cut_off_from_its_fellows_misses_nothing(seed: int) -> None:
    """It still reaches the other domains. Soon it and its fellows are two sites, and stay so: which
    of them keeps the place is not said, as neither is the older cluster."""
    mesh = Domains(seed, Shape(trees=2, backups=1, keep_us=60_000_000), domains=3)
    world = mesh.world
    more = [f"more{number}" for number in range(5)]
    for address in more:
        world.start(address, "d1", ("d0-0",))
        mesh.beats(4)
    world.publish(mesh.publisher, TOPIC, b"first")
    mesh.beats(5)
    fellows = [*more, *(a for a, of in mesh.of.items() if of == "d1")]
    leader = next(a for a in fellows if world.nodes[a].cluster.leads)
    second = next(a for a in fellows if a != leader and world.nodes[a].sites)
    mesh.net.cut.update(frozenset((second, a)) for a in fellows if a != second)
    assert not list(mesh.missed(60))
    for _ in range(60):
        mesh.beats(1)
        views = [world.nodes[address].cluster.view for address in (leader, second)]
        home, own = sorted(view.site for view in views if view is not None)
        assert home == "d1" and own.startswith("d1~")


def test_what_is_told_by_the_second_coordinator_was_before_the_subscription_too() -> None:
    """The first one to answer has just begun, and has heard of nothing."""
    node = Mesh("n0", "n0", "rome", Shape(), Random(1), seeds=("c",), candidate=False)
    view = View("rome", 1, (Member("c", "c", True), Member("n0", "n0", False)))
    node.receive("c", Views(view), 0)
    node.subscribe("t", "all", 0)
    assert Done("all") not in node.receive("c", Ready(1, 1, ()), 1)
    assert Done("all") in node.receive("c", Ready(0, 1, (("t", "s", 90),)), 1)
    arrived = node.receive("c", Fetched(tuple(Item("t", "s", n, b"") for n in (89, 90, 91))), 2)
    assert arrived == [Arrive("t", b"")]
