"""Rosters: who takes part in a group, and which slots are whose, as documents.

Each member has a document of its own, `member/<id>`: since when it is there, how long its lease is
from each write on, and whether it retires. So beats of members never meet. One more, `owners`, has
the owner of each slot, and is changed only by who has read what it says. An owner counts while its
member is there and its lease has not passed; all others' slots are free. A member whose document
this version cannot read counts for `UNREAD_MS` from when that was written, and a slot whose entry
it cannot read is left to its owner.

    absent ──heartbeat──► member ──claim──► member and owner ──release_slots──► member
       ▲                    │ heartbeat: the lease begins anew      │
       └──── leave, or the lease has passed: with all that it owns ─┘

Whose lease has passed owns nothing, also if it comes back: whoever joins has first taken its old
slots out of `owners`. A heartbeat that comes so late that the lease has passed on its way takes
them out at once, and is answered only then. Meanwhile another one may have made them its own; both
have to write over the same version of `owners`, so one of the two is refused, and reads again.

A member that `retire` has marked is to own nothing: the others count on its slots, and each is
theirs as soon as it has released that one. The mark goes with its lease.

A roster's *version* is made of what its documents say: of the number that each member has drawn as
it joined, and of the version of `owners`. So equal versions mean equal members and owners, also
when a server comes back with an older state, or a group was dropped and has subscribed again. Which
of two is the later one cannot be told. A renewed lease is no change.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from hashlib import blake2b
from typing import Any, Final, Protocol

import msgspec

from qframe.roster import LARGEST_VERSION, NO_VERSION, Member, Owner, Roster, fresh_version
from qframe.stores.bell import Bell
from qframe.stores.documents import Document, DocumentBells, Documents, Listed, Space, Write
from qframe.topic import Topic

UNREAD_MS: Final = 600_000
"""For how long a member counts that a newer version has written."""

_MEMBER: Final = "member/"
_OWNERS: Final = "owners"


class _Lease(msgspec.Struct):
    """The text of a member's document: its lease is counted from when that was written.

    Each joining has a number drawn at random, so that no two are called the same.
    """

    since_ms: int
    lease_ms: int
    joining: int
    retiring: bool = False


class _Entry(msgspec.Struct, array_like=True, frozen=True):
    """Whose a slot is, under which epoch and since when, as the document of owners has it."""

    member: str
    epoch: str
    since_ms: int


class _Seen:
    """A roster as it stood at one moment.

    Attributes:
        now_ms: that moment, by the store's clock.
        members: those that are kept, by id, also if their lease has passed.
        leases: what their documents say.
        versions: those of their documents.
        owners: the owners of slots, also those that do not count.
        unread: the entries of slots that cannot be read.
    """

    def __init__(self, listed: Listed) -> None:
        self.now_ms: int = listed.now_ms
        self.members: dict[str, Member] = {}
        self.leases: dict[str, _Lease] = {}
        self.versions: dict[str, int] = {}
        self.owners: Mapping[int, _Entry] = {}
        self.owners_version: int = NO_VERSION
        self.unread: Mapping[str, Any] = {}
        self._strangers: set[str] = set()
        for document in listed.documents:
            if document.name == _OWNERS:
                self.owners_version = document.version
                self.owners, self.unread = _entries(document.value)
            elif document.name.startswith(_MEMBER):
                self._read_member(document)

    def living(self) -> dict[str, Member]:
        """The members whose lease has not passed."""
        return {
            name: member for name, member in self.members.items() if member.until_ms > self.now_ms
        }

    def counting(self) -> Mapping[int, _Entry]:
        """The owners whose member is living, by slot."""
        living = self.living().keys() | self._strangers
        if {each.member for each in self.owners.values()} <= living:
            return self.owners
        return {slot: each for slot, each in self.owners.items() if each.member in living}

    def text_of(self, owners: Mapping[int, _Entry]) -> str:
        """The text of the document of owners; what this version could not read stays in it."""
        return msgspec.json.encode({**self.unread, **owners}).decode()

    def version(self) -> int:
        """The roster's version: a name for members and owners, whatever their leases are."""
        if not self.leases and self.owners_version == NO_VERSION:
            return NO_VERSION
        told = [(name, each.joining, each.retiring) for name, each in self.leases.items()]
        text = msgspec.json.encode((sorted(told), self.owners_version))
        return 1 + int.from_bytes(blake2b(text, digest_size=8).digest(), "big") % LARGEST_VERSION

    def _read_member(self, document: Document) -> None:
        name = document.name.removeprefix(_MEMBER)
        self.versions[name] = document.version
        try:
            lease = msgspec.json.decode(document.value, type=_Lease)
        except msgspec.DecodeError:
            if document.at_ms + UNREAD_MS > self.now_ms:
                self._strangers.add(name)
            return
        until_ms = document.at_ms + lease.lease_ms
        self.members[name] = Member(name, lease.since_ms, until_ms, retiring=lease.retiring)
        self.leases[name] = lease


_OWNERS_DECODER: Final = msgspec.json.Decoder(dict[int, _Entry])


@lru_cache(maxsize=16)  # it is read at each beat, and changes seldom
def _entries(text: str) -> tuple[Mapping[int, _Entry], Mapping[str, Any]]:
    """What a document of owners says by slot, and the entries that this version cannot read."""
    with suppress(msgspec.DecodeError):
        return _OWNERS_DECODER.decode(text), {}
    try:
        entries = msgspec.json.decode(text, type=dict[str, Any])
    except msgspec.DecodeError:
        return {}, {}
    known: dict[int, _Entry] = {}
    unread: dict[str, Any] = {}
    for slot, entry in entries.items():
        try:
            known[int(slot)] = msgspec.convert(entry, type=_Entry)
        except ValueError:
            unread[slot] = entry
    return known, unread


class Rosters(Documents, DocumentBells, Protocol):
    """Which workers take part, and which slots are whose, by leases on the store's clock.

    All but `roster` count those members out whose lease has passed, with what they owned. All are
    idempotent, so that one whose reply was lost can be repeated.
    """

    def heartbeat(self, topic: Topic, group: str, member: str, lease_ms: int) -> int:
        """Makes a member's lease end `lease_ms` from now; returns the roster's version.

        One that is not there joins; so does one whose lease has passed, and owns nothing.
        """
        while True:
            seen = _cleared(self, topic, group)
            known = seen.members.get(member)
            lease = seen.leases.get(member) or _Lease(seen.now_ms, 0, fresh_version())
            lease.lease_ms = lease_ms
            version = seen.versions.get(member, NO_VERSION)
            write = Write(_MEMBER + member, _text(lease), version)
            [written] = self.write_documents(topic, group, Space.ROSTER, [write])
            if written is None:
                continue
            if known is None or written.at_ms < known.until_ms:
                seen.leases[member] = lease
                return seen.version()
            _disown(self, topic, group, member)  # it has passed on the way

    def roster(self, topic: Topic, group: str, seen: int | None = None) -> Roster | None:
        """Only looks; None if the version is still `seen` and no lease has passed since.

        Members whose lease has passed, and what they owned, are left out of the answer. It has no
        version then: they may be there again, if the store's clock goes back.
        """
        found = _Seen(self.list_documents(topic, group, Space.ROSTER))
        living = found.living()
        version = found.version() if len(living) == len(found.members) else NO_VERSION
        if version == seen and len(living) == len(found.members):
            return None
        members = sorted(living.values(), key=lambda each: (each.since_ms, each.id))
        owners = {
            slot: Owner(slot, each.member, each.epoch, each.since_ms)
            for slot, each in sorted(found.counting().items())
        }
        return Roster(version, members, owners)

    def claim(self, topic: Topic, group: str, member: str, epochs: Mapping[int, str]) -> list[int]:
        """Makes free slots the member's, each under the epoch given for it.

        Returns those that are its own now under that epoch. A slot that another living member owns
        is refused, one that the member owns under another epoch too, and everything is if the
        member is not there or its lease has passed.
        """
        owners: dict[int, _Entry] = {}

        def claimed(seen: _Seen) -> Mapping[int, _Entry]:
            owners.clear()
            if member in seen.living():
                mine = {
                    slot: _Entry(member, each, seen.now_ms)
                    for slot, each in epochs.items()
                    if str(slot) not in seen.unread
                }
                owners.update({**mine, **seen.owners})
            return owners or seen.owners

        _change_owners(self, topic, group, claimed)
        mine = {slot: each.epoch for slot, each in owners.items() if each.member == member}
        return [slot for slot, epoch in epochs.items() if mine.get(slot) == epoch]

    def release_slots(self, topic: Topic, group: str, member: str, slots: Sequence[int]) -> None:
        """Frees those of the slots that are the member's."""
        _disown(self, topic, group, member, slots)

    def retire(self, topic: Topic, group: str, member: str) -> None:
        """Marks a member, if it is there, as one that is to own nothing; what it owns it keeps."""
        written = None
        while written is None:
            seen = _cleared(self, topic, group)
            known = seen.members.get(member)
            if known is None or known.retiring:
                return
            lease = seen.leases[member]
            lease.lease_ms = known.until_ms - seen.now_ms  # it is no sign of life
            lease.retiring = True
            write = Write(_MEMBER + member, _text(lease), seen.versions[member])
            [written] = self.write_documents(topic, group, Space.ROSTER, [write])

    def leave(self, topic: Topic, group: str, member: str) -> None:
        """Takes a member out with all that it owns, whoever asks for it."""
        self.write_documents(topic, group, Space.ROSTER, [Write(_MEMBER + member, None)])
        _cleared(self, topic, group)  # of what it owned, which counts no more

    def roster_bell(self, topic: Topic, group: str) -> Bell | None:
        """A bell that rings when the roster may have changed, but for a lease that passes.

        None where the store cannot tell; who wants to know then looks now and then.
        """
        return self.document_bell(topic, group, Space.ROSTER)


def _cleared(store: Documents, topic: Topic, group: str) -> _Seen:
    """A roster, once those whose lease has passed are taken out, with what they owned."""
    while True:
        seen = _Seen(store.list_documents(topic, group, Space.ROSTER))
        passed = seen.members.keys() - seen.living().keys()
        if not passed and seen.counting() == seen.owners:
            return seen
        if _write_owners(store, topic, group, seen, seen.counting()):
            # A member that was heard meanwhile has another version.
            removals = [Write(_MEMBER + name, None, seen.versions[name]) for name in sorted(passed)]
            store.write_documents(topic, group, Space.ROSTER, removals)


def _change_owners(
    store: Documents, topic: Topic, group: str, change: Callable[[_Seen], Mapping[int, _Entry]]
) -> None:
    """Writes other owners, by what the roster says when they are written."""
    while True:
        seen = _cleared(store, topic, group)
        if _write_owners(store, topic, group, seen, change(seen)):
            return


def _write_owners(
    store: Documents, topic: Topic, group: str, seen: _Seen, owners: Mapping[int, _Entry]
) -> bool:
    """Writes owners, if they are others; False if somebody has done so since they were read."""
    if owners == seen.owners:
        return True
    write = Write(_OWNERS, seen.text_of(owners), seen.owners_version)
    [written] = store.write_documents(topic, group, Space.ROSTER, [write])
    return written is not None


def _disown(
    store: Documents, topic: Topic, group: str, member: str, slots: Collection[int] | None = None
) -> None:
    """Frees slots of a member; all of them if none are named."""

    def others(seen: _Seen) -> dict[int, _Entry]:
        return {
            slot: each for slot, each in seen.owners.items()
            if each.member != member or (slots is not None and slot not in slots)
        }  # fmt: skip

    _change_owners(store, topic, group, others)


def _text(lease: _Lease) -> str:
    return msgspec.json.encode(lease).decode()
