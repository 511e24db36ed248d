"""Checks of a coordinator in ZooKeeper."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from kazoo.exceptions import NoAuthError, NoNodeError
from kazoo.security import ACL, Permissions

from qframe.doctor.findings import Finding
from qframe.drivers.zookeeper import FAILURES, ZooKeeper

ABOUT: Final = 0.01
START_S: Final = 5.0
_ANYBODY: Final = "world"
_DIGEST: Final = "digest"


def session(zookeeper: ZooKeeper, asked_s: float) -> Finding | None:
    """The servers grant sessions as long as was asked for."""
    granted_s = zookeeper.session_s
    if abs(granted_s - asked_s) <= ABOUT * asked_s:
        return None
    return Finding(
        check="session", level="warning",
        what=f"the servers grant sessions of {granted_s:g} s, and session_timeout is {asked_s:g} s",
        remedy="set session_timeout to that, or minSessionTimeout and maxSessionTimeout there",
    )  # fmt: skip


def rights(zookeeper: ZooKeeper, namespace: str) -> Finding | None:
    """The user may change the nodes, and nobody else."""
    path = f"/{namespace}"
    try:
        try:
            acls = _acls(zookeeper, path)
        except NoNodeError:  # no worker has started yet: the first one makes it
            path = "/"
            acls = _acls(zookeeper, path)
    except NoAuthError:
        return Finding(
            check="rights", level="error", what=f"the user may not read {zookeeper.root}{path}",
            remedy="name the user that made the nodes in the coordinator's URL, or set their ACLs",
        )  # fmt: skip
    except FAILURES as error:
        raise zookeeper.unavailable(error) from error
    if not _lets_in(acls, zookeeper.acl or ()):
        return Finding(
            check="rights", level="error",
            what=f"the user may not make nodes below {(zookeeper.root + path).rstrip('/') or '/'}",
            remedy="name the user that made it in the coordinator's URL, or another path, or set "
            "its ACLs",
        )  # fmt: skip
    if path == "/" or not any(
        acl.id.scheme == _ANYBODY and acl.perms & Permissions.WRITE for acl in acls
    ):
        return None
    return Finding(
        check="rights", level="note",
        what=f"anybody who reaches the servers may change {zookeeper.root}{path}",
        remedy="name a user in the coordinator's URL before the first worker starts",
    )  # fmt: skip


def _acls(zookeeper: ZooKeeper, path: str) -> list[ACL]:
    """The rights at a node that the user may read."""
    zookeeper.client.get_children_async(path).get(timeout=START_S)
    acls, _ = zookeeper.client.get_acls_async(path).get(timeout=START_S)
    return list(acls)


def _lets_in(acls: Iterable[ACL], own: Iterable[ACL]) -> bool:
    """Whether the user may make nodes; of other schemes than a digest it is not known here."""
    known = {acl.id for acl in own}
    makers = [acl.id for acl in acls if acl.perms & Permissions.CREATE]
    return any(each in known or each.scheme != _DIGEST for each in makers)


def ensemble(zookeeper: ZooKeeper) -> Finding | None:
    """One server may fail without all workers stopping."""
    hosts = zookeeper.shown.partition("://")[2].partition("/")[0].split(",")
    if len(hosts) > 1:
        return None
    return Finding(
        check="ensemble", level="note",
        what=f"the coordinator's URL names one server, {hosts[0]}: without it nothing is handled",
        remedy="run three servers, and name all of them",
    )  # fmt: skip
