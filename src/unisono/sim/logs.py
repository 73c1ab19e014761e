"""Looks into the logs of a simulated bus: is there one, is it well, is something left over?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from unisono.core.node import Node
from unisono.qos.total_order.by_log.domain import Domain
from unisono.qos.total_order.by_log.layer import LogOrder
from unisono.sim.verdict import Witness


def domains_of(nodes: Mapping[str, Node]) -> dict[str, dict[str, Domain]]:
    """By the domain's name and the node's."""
    found: dict[str, dict[str, Domain]] = {}
    for name, node in nodes.items():
        for layer in node.stack.layers:
            if isinstance(layer, LogOrder):
                for domain in layer.domains.values():
                    found.setdefault(domain.known.domain, {})[name] = domain
    return found


def are_one(nodes: Mapping[str, Node]) -> bool:
    """Logs that were begun apart have become one, in every domain."""
    every = domains_of(nodes).values()
    return all(len({domain.known.log for domain in ones.values()}) == 1 for ones in every)


def are_well(nodes: Mapping[str, Node], voters: int) -> bool:
    """In every domain one leads, and as many vote as should, all of them here and up to date."""
    return all(_is_well(ones, voters) for ones in domains_of(nodes).values())


def _is_well(ones: Mapping[str, Domain], voters: int) -> bool:
    rafts = [domain.voter.raft for domain in ones.values() if domain.voter is not None]
    leaders = [raft for raft in rafts if raft.serves]
    if len(leaders) != 1:
        return False
    present = leaders[0].log.configuration
    settled = leaders[0].log.configured_at <= leaders[0].committed and not present.joining
    here = present.everyone <= ones.keys()
    full = len(present.voters) >= voters
    return settled and here and full and all(leaders[0].has_all(v) for v in present.voters)


def left_over(nodes: Mapping[str, Node], voters: int) -> Iterator[Witness]:
    """What is held or waited for. At the end of a run there should be nothing."""
    for name, ones in domains_of(nodes).items():
        if not _is_well(ones, voters):
            yield {"domain": name, "log": "no leader, or not as many voters as there should be"}
        for node, domain in ones.items():
            if domain.subscriber.behind:
                yield {"node": node, "subscriber at": domain.subscriber.position}
            if not domain.publisher.idle:
                yield {"node": node, "publisher": "has not done"}


def copies(nodes: Mapping[str, Node]) -> Iterator[tuple[str, str, tuple[int, int], bytes]]:
    """The states of voters: node, domain, how far, what."""
    for name, ones in domains_of(nodes).items():
        for node, domain in ones.items():
            if domain.voter is not None:
                yield node, name, (0, domain.voter.applied), domain.voter.state.encode()
