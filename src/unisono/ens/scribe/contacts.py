"""Whom a process knows of, beyond those that it hears: for when it is on its own one day."""

from __future__ import annotations

from collections.abc import Iterable

from unisono.ens.scribe.messages import Contact, View

_CONTACTS = 64  # of other sites that are remembered; then the one is forgotten that was named first


class Contacts:
    """Other sites that were named, and fellows that this process was cut off from."""

    def __init__(self) -> None:
        self.sites: dict[str, Contact] = {}
        self.fellows: tuple[str, ...] = ()

    @property
    def addresses(self) -> set[str]:
        """All that may be asked for a way to the others."""
        return {*self.fellows, *(a for c in self.sites.values() for a in c.addresses)}

    def remember(self, contacts: Iterable[Contact]) -> None:
        for contact in contacts:
            known = self.sites.pop(contact.site, contact)
            self.sites[contact.site] = contact if contact.version >= known.version else known
            if len(self.sites) > _CONTACTS:
                del self.sites[next(iter(self.sites))]

    def changed(self, before: View | None, view: View, domain: str) -> None:
        """The cluster is another. Who has left it, or was left out, remembers the others."""
        known = self.fellows
        if before is not None and before.site != view.site:
            known = tuple(member.address for member in before.members)
        inside = {member.address for member in view.members}
        self.fellows = tuple(a for a in known if a not in inside) if view.site != domain else ()
