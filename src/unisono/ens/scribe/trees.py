"""Who passes the events of a topic on to whom: Scribe's trees, those of one slot.

A site that wants a topic asks along the route to the topic's key. The first on the way that is in
the tree takes it as a child; who is not takes it, too, and asks on. The site nearest to the key is
the root. Every site knows its path from the root: nobody takes a child that it hangs below. When a
parent is gone, its children ask again.

Where some sites cannot reach each other, several may take themselves for the root. So every site
asks the others in turn whether they have a root nearer to the key; who has takes it as a child.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from zlib import crc32

from unisono.ens.scribe.ids import distance, group_id, site_id
from unisono.ens.scribe.messages import (
    Adopt,
    AskPaths,
    Contact,
    Graft,
    Head,
    Message,
    Path,
    Prune,
    Refuse,
    Topics,
)
from unisono.ens.scribe.pastry import Ring

LONGEST = 64  # a path of more sites is taken for a circle
_OTHERS = 16  # sites of the tree that a new child is told of
_ASKED = 16  # topics for which another site is asked in a beat: have you a nearer root?


class Tree:
    """One site's place in the tree of a topic."""

    __slots__ = (
        "asked_us",
        "at_root",
        "born_us",
        "checked",
        "children",
        "local",
        "parent",
        "path",
        "ready",
        "root",
        "served",
        "since_us",
        "switching",
    )

    def __init__(self, now: int) -> None:
        self.born_us = now
        self.local = False  # somebody in the cluster subscribes
        self.parent: Contact | None = None
        self.children: dict[str, Contact] = {}
        self.path: tuple[str, ...] = ()  # from the root to the parent
        self.root = False
        self.ready = False  # the root is reached
        self.served = False  # it was reached before: what is published meanwhile was missed
        self.at_root = False  # ask nobody but the root
        self.asked_us: int | None = None
        self.checked = -1  # the place is right, as of that turn of the ring
        self.since_us = 0  # the parent is this since
        self.switching: str | None = None  # to this parent, when it has taken us

    @property
    def wanted(self) -> bool:
        return self.local or bool(self.children)


class Trees:
    """The trees that one site is in."""

    def __init__(
        self,
        ring: Ring,
        me: Callable[[], Contact],
        tell: Callable[[Contact, Message], None],
        route: Callable[[Contact, Message], None],
        heads: Callable[[str], tuple[Head, ...]],
        hear_heads: Callable[[tuple[Head, ...], bool], None],
        ready: Callable[[str], None],
        patience_us: int,
    ) -> None:
        self._ring = ring
        self._me = me
        self._tell = tell
        self._route = route
        self._heads = heads
        self._hear_heads = hear_heads
        self._ready = ready
        self._patience_us = patience_us
        self.trees: dict[str, Tree] = {}
        self.adopted: list[str] = []  # topics with a new parent, since somebody last looked

    def __getitem__(self, topic: str) -> Tree:
        return self.trees[topic]

    def get(self, topic: str) -> Tree | None:
        return self.trees.get(topic)

    def of_child(self, site: str) -> Iterator[tuple[str, Tree]]:
        return ((topic, tree) for topic, tree in self.trees.items() if site in tree.children)

    def of_parent(self, site: str) -> Iterator[tuple[str, Tree]]:
        return (
            (topic, tree)
            for topic, tree in self.trees.items()
            if tree.parent is not None and tree.parent.site == site
        )

    @property
    def around(self) -> dict[str, Contact]:
        """All parents and children."""
        found: dict[str, Contact] = {}
        for tree in self.trees.values():
            if tree.parent is not None:
                found[tree.parent.site] = tree.parent
            found.update(tree.children)
        return found

    # What the cluster wants.

    def want(self, topic: str, now: int) -> Tree:
        tree = self.trees.get(topic)
        if tree is None:
            tree = self.trees[topic] = Tree(now)
        tree.local = True
        self._join(topic, tree, now)
        return tree

    def unwant(self, topic: str) -> None:
        tree = self.trees.get(topic)
        if tree is not None:
            tree.local = False
            self._prune(topic, tree)

    def _prune(self, topic: str, tree: Tree) -> None:
        if not tree.wanted:
            if tree.parent is not None:
                self._tell(tree.parent, Prune(self._ring.slot, topic, self._ring.site))
            del self.trees[topic]

    # Joining.

    def _join(self, topic: str, tree: Tree, now: int, again: bool = False) -> None:
        hop = self._ring.next_hop(group_id(topic, self._ring.slot))
        if hop is None:
            if not tree.root and not self._below_nearer(topic, tree):
                if tree.parent is not None:
                    self._tell(tree.parent, Prune(self._ring.slot, topic, self._ring.site))
                tree.parent, tree.root, tree.path = None, True, ()
                self._changed(topic, tree, True)
            return
        if tree.root:
            tree.root = False
        elif tree.parent is not None and not again:
            return
        if tree.asked_us is not None and now - tree.asked_us < self._patience_us and not again:
            return
        tree.asked_us = now
        self._route(hop, Graft(self._ring.slot, topic, self._me(), at_root=tree.at_root))

    def graft(self, graft: Graft, now: int) -> None:
        """Somebody wants to be a child, here or further on."""
        slot, topic, child = graft.slot, graft.topic, graft.child
        if child.site == self._ring.site or graft.hops > LONGEST:
            return
        tree = self.trees.get(topic)
        hop = self._ring.next_hop(group_id(topic, slot))
        above = tree is not None and child.site in tree.path
        if graft.root and not self._know_nearer(graft, tree, hop, now):
            return
        if graft.direct:
            if tree is None or not tree.ready or above:
                self._tell(child, Refuse(slot, topic, self._ring.site))
                return
        elif hop is not None and (graft.at_root or above):
            if hop.site != child.site:
                on = Graft(slot, topic, child, graft.hops + 1, graft.at_root or above)
                self._route(hop, on)
                if tree is not None and above and not tree.ready:
                    self._leave(topic, tree, now)  # it finds no place; perhaps we do
            return
        if tree is None:
            tree = self.trees[topic] = Tree(now)
        if tree.parent is not None and tree.parent.site == child.site:
            tree.parent, tree.ready = None, False  # it was mine; it has lost its own
        tree.children[child.site] = child
        if tree.parent is None:
            self._join(topic, tree, now)
        others = [c for c in tree.children.values() if c.site != child.site][:_OTHERS]
        if tree.parent is not None:
            others.append(tree.parent)
        path = (*tree.path, self._ring.site)
        heads, age_us = self._heads(topic), now - tree.born_us
        answer = Adopt(slot, topic, self._me(), path, tree.ready, tuple(others), heads, age_us)
        self._tell(child, answer)

    def adopt(self, adopt: Adopt, now: int) -> list[Contact]:
        """Somebody has taken us. The others of the tree that it names, if it is the parent now."""
        topic, parent = adopt.topic, adopt.parent
        if parent.site == self._ring.site:
            return []  # nonsense: it would hang below itself for good
        tree = self.trees.get(topic)
        refused = Prune(adopt.slot, topic, self._ring.site)
        nearer = tree is not None and self._better(adopt, tree)
        if tree is None or not tree.wanted or (tree.root and not nearer):
            self._tell(parent, refused)
            return []
        if self._ring.site in adopt.path or len(adopt.path) > LONGEST:
            self._tell(parent, refused)
            tree.at_root = True
            return []
        old = tree.parent
        if old is not None and old.site != parent.site:
            asked = tree.switching == parent.site and adopt.path[0] == self.top(tree)
            if not asked and not nearer:
                self._tell(parent, refused)
                return []
            self._tell(old, refused)
        tree.children.pop(parent.site, None)
        tree.switching = tree.asked_us = None
        tree.at_root = tree.root = False
        if old is None or old.site != parent.site:
            tree.since_us = now
            self._hear_heads(adopt.heads, tree.served)
            self.adopted.append(topic)
        tree.parent = parent
        if adopt.path != tree.path or adopt.ready != tree.ready:
            tree.path = adopt.path
            self._changed(topic, tree, adopt.ready)
        return [contact for contact in adopt.others if contact.site != self._ring.site]

    def refuse(self, refuse: Refuse, now: int) -> None:
        """It does not take us; if we took it for our parent, it is none."""
        tree = self.trees.get(refuse.topic)
        if tree is None:
            return
        if tree.switching == refuse.site:
            tree.switching = None
        elif tree.parent is not None and tree.parent.site == refuse.site:
            self._lose_parent(refuse.topic, tree, now)

    def switch(self, topic: str, parent: Contact) -> None:
        """Ask to hang below another one; the old parent is left when it agrees."""
        tree = self.trees.get(topic)
        if tree is None or tree.root or parent.site == self._ring.site:
            return
        if tree.parent is not None and tree.parent.site == parent.site:
            return
        tree.switching = parent.site
        self._tell(parent, Graft(self._ring.slot, topic, self._me(), direct=True))

    def again(self, topic: str, now: int) -> None:
        """Something was missed: ask for a place anew."""
        tree = self.trees.get(topic)
        if tree is not None and not tree.root:
            tree.switching = None
            self._lose_parent(topic, tree, now)

    def path(self, path: Path, now: int) -> None:
        """The parent has moved."""
        tree = self.trees.get(path.topic)
        if tree is None or tree.parent is None or tree.parent.site != path.site:
            return
        if self._ring.site in path.path or len(path.path) > LONGEST:
            tree.at_root = True
            self._leave(path.topic, tree, now)
        elif path.path != tree.path or path.ready != tree.ready:
            tree.path = path.path
            self._changed(path.topic, tree, path.ready)

    def _changed(self, topic: str, tree: Tree, ready: bool) -> None:
        """The path from the root is another, or is whole now: children are told."""
        tree.ready = ready
        tree.checked = -1
        if ready:
            tree.served = True
            self._ready(topic)
        for child in tree.children.values():
            self._tell(child, self._path(topic, tree))

    def _path(self, topic: str, tree: Tree) -> Path:
        slot, site = self._ring.slot, self._ring.site
        return Path(slot, topic, site, (*tree.path, site), tree.ready)

    def prune(self, topic: str, site: str) -> None:
        tree = self.trees.get(topic)
        if tree is not None:
            tree.children.pop(site, None)
            self._prune(topic, tree)

    # Keeping it up.

    def lost(self, site: str, now: int) -> None:
        """A neighbour is gone."""
        for topic, tree in list(self.trees.items()):
            tree.children.pop(site, None)
            if tree.parent is not None and tree.parent.site == site:
                self._lose_parent(topic, tree, now)
            else:
                self._prune(topic, tree)

    def _leave(self, topic: str, tree: Tree, now: int) -> None:
        """Look for another parent."""
        if tree.parent is not None:
            self._tell(tree.parent, Prune(self._ring.slot, topic, self._ring.site))
        self._lose_parent(topic, tree, now)

    def _lose_parent(self, topic: str, tree: Tree, now: int) -> None:
        tree.parent, tree.asked_us, tree.ready = None, None, False
        if tree.wanted:
            self._join(topic, tree, now)
        else:
            del self.trees[topic]

    def moved(self, contact: Contact) -> None:
        """A neighbour is at other addresses."""
        for tree in self.trees.values():
            if contact.site in tree.children:
                tree.children[contact.site] = contact
            if tree.parent is not None and tree.parent.site == contact.site:
                tree.parent = contact

    def tick(self, now: int) -> None:
        """Ask again where nobody has answered; see whether the roots are still the roots."""
        turn = self._ring.turns
        for topic, tree in list(self.trees.items()):
            placed = tree.ready and (tree.root or tree.parent is not None)
            if not placed or tree.checked != turn:
                tree.checked = turn
                self._join(topic, tree, now)

    # Several roots, because some sites cannot reach each other.

    def unite(self, turn: int) -> None:
        """Ask another site whether it has a nearer root, for some of our topics."""
        leaves, topics = self._ring.leaves, list(self.trees)
        if leaves and topics:
            rounds = -(-len(topics) // _ASKED)
            leaf = leaves[turn // rounds % len(leaves)]
            for topic in topics[turn % rounds :: rounds]:
                tree = self.trees[topic]
                if tree.ready:
                    graft = Graft(self._ring.slot, topic, self._me(), root=self.top(tree))
                    self._tell(leaf, graft)

    def _nearer(self, topic: str, one: str, other: str) -> bool:
        """Whether one site is nearer to the key than another."""
        slot = self._ring.slot
        key = group_id(topic, slot)
        first, second = site_id(one, slot), site_id(other, slot)
        return (distance(first, key), first) < (distance(second, key), second)

    def top(self, tree: Tree) -> str:
        """The root that we hang below, or are."""
        return tree.path[0] if tree.path else self._ring.site

    def _better(self, adopt: Adopt, tree: Tree) -> bool:
        return adopt.ready and self._nearer(adopt.topic, adopt.path[0], self.top(tree))

    def _below_nearer(self, topic: str, tree: Tree) -> bool:
        """Whether we hang below a root that is nearer than any site that we can reach."""
        below = tree.parent is not None and tree.ready
        return below and self._nearer(topic, self.top(tree), self._ring.site)

    def _know_nearer(self, graft: Graft, tree: Tree | None, hop: Contact | None, now: int) -> bool:
        """Whether the tree that we are in, or could join, has a nearer root than the sender's."""
        topic = graft.topic
        if tree is not None and tree.ready and graft.child.site not in tree.path:
            return self._nearer(topic, self.top(tree), graft.root)
        if not self._nearer(topic, hop.site if hop is not None else self._ring.site, graft.root):
            return False
        if tree is not None and tree.parent is not None and tree.ready:
            # We hang below the sender, and know better: we go there, and next time take it along.
            self._leave(topic, tree, now)
            return False
        return tree is None

    # Do parent and child agree?

    def below(self, site: str) -> int:
        """A hash of the topics that this site is our parent for."""
        return _hashed(topic for topic, _ in self.of_parent(site))

    def below_us(self, site: str) -> int:
        """The same, as the parent sees it."""
        return _hashed(topic for topic, _ in self.of_child(site))

    def above_them(self, site: str) -> int:
        """A hash of what this child must know of our paths."""
        return _hashed(
            f"{topic} {tree.ready} {' '.join((*tree.path, self._ring.site))}"
            for topic, tree in self.of_child(site)
        )

    def above(self, site: str) -> int:
        return _hashed(
            f"{topic} {tree.ready} {' '.join(tree.path)}" for topic, tree in self.of_parent(site)
        )

    def topics(self, topics: Topics, now: int) -> None:
        """What a child says it is our child for; it knows."""
        site = topics.child.site
        said = set(topics.topics)
        for topic, tree in list(self.of_child(site)):
            if topic not in said:
                del tree.children[site]
                self._prune(topic, tree)
        for topic in topics.topics:
            mine = self.trees.get(topic)
            if mine is None or site not in mine.children:
                known = mine is not None
                self.graft(Graft(self._ring.slot, topic, topics.child, direct=known), now)

    def paths(self, ask: AskPaths) -> None:
        for topic, tree in list(self.of_child(ask.site)):
            self._tell(tree.children[ask.site], self._path(topic, tree))


def _hashed(words: Iterator[str]) -> int:
    return crc32("\n".join(sorted(words)).encode())
