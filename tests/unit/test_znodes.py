"""The texts in ZooKeeper's nodes."""

from __future__ import annotations

import pytest

from qframe.coordination.znodes import base_of, epoch_of, name_of, owner_value, worker_of


@pytest.mark.parametrize(("base", "czxid"), [(0, 9), (0, 15), (2**40, 0), (0, 2**62)])
def test_of_two_epochs_the_later_one_is_the_larger_text(base: int, czxid: int) -> None:
    assert epoch_of(base, czxid) < epoch_of(base, czxid + 1) < epoch_of(base + 2, czxid)


def test_an_owner_is_named_with_the_base_of_its_epoch() -> None:
    value = owner_value("host-7-ab~1f", 31)
    assert (name_of(value), base_of(value), worker_of(name_of(value))) == (
        "host-7-ab~1f", 31, "host-7-ab",
    )  # fmt: skip
