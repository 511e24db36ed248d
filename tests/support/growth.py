"""The steps by which a topic's slots are doubled, without the messages that are in them."""

from __future__ import annotations

from qframe.growth import Growth
from qframe.stores.base import Store
from qframe.topic import Topic


def closes(topic: Topic) -> Topic:
    """The topic once its next slot is closing."""
    return topic.grown(topic.slots, topic.growth._replace(closing=True, target=2 * topic.slots))


def splits(topic: Topic) -> Topic:
    """The topic once the slot that is closing is split."""
    growth = topic.growth
    if growth.split + 1 < topic.slots:
        return topic.grown(topic.slots, growth._replace(split=growth.split + 1, closing=False))
    return topic.grown(2 * topic.slots, Growth(first=growth.first + topic.slots))


def grows(store: Store, topic: Topic, group: str = "g") -> Topic:
    """Does the next step in a store, and returns the topic; nothing while the slot has an owner."""
    if not topic.growth.closing:
        following = closes(topic)
    else:
        slot = topic.growth.first + topic.growth.split
        roster = store.roster(topic, group)
        if roster is None or slot in roster.owners:
            return topic
        for half in topic.split_of(slot):
            store.open_slot(topic, half, slot, "token")
        store.close_slot(topic, slot)
        following = splits(topic)
    assert store.grow(topic, following, dict.fromkeys(following.all_slots, "token"))
    return following
