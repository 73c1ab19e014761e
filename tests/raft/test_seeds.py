"""Raft's five properties, whatever happens: many clusters with faults, by seed."""

from __future__ import annotations

import pytest
from support.raft_bugs import BUGS
from support.raft_cluster import STORIES, Broken, Cluster
from support.seeds import seed_range, some

_SEEDS = 2000


@pytest.mark.seeded
@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_the_papers_properties_hold(story: object) -> None:
    assert callable(story)
    for seed in seed_range(some(120)):
        try:
            story(seed)
        except (Broken, AssertionError) as broken:
            raise AssertionError(f"seed {seed}: {broken}") from broken


def test_a_story_is_the_same_each_time() -> None:
    def told(cluster: Cluster) -> object:
        return cluster.committed, cluster.sent, cluster.now

    for story in STORIES:
        assert told(story(7)) == told(story(7))


@pytest.mark.parametrize("name", BUGS)
def test_the_bug_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A property that cannot fail is none. The first seed that shows the bug is noted beside it."""
    bug = BUGS[name]
    bug.inject(monkeypatch)
    for seed in range(bug.first, bug.first + _SEEDS):
        for story in STORIES:
            try:
                story(seed)
            except Exception:  # a property, or an assertion of Raft itself
                return
    raise AssertionError(f"not found in {_SEEDS} seeds")
