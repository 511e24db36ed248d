"""Which addresses are of the internet, by IANA's registries of special-purpose addresses.

https://www.iana.org/assignments/iana-ipv4-special-registry, and the same of ipv6, as of 2026. They
are written out here, since each Python knows another state of them: 3.11 takes 192.0.0.0/24 for
public.
"""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Final

_IPV4_SPECIAL: Final = [
    IPv4Network(each)
    for each in (
        "0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16",
        "172.16.0.0/12", "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16",
        "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24",
        "224.0.0.0/4",  # multicast, of a registry of its own
        "240.0.0.0/4",
    )
]  # fmt: skip
_IPV6_SPECIAL: Final = [
    IPv6Network(each)
    for each in ("2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20")
]  # fmt: skip
_GLOBAL_UNICAST: Final = IPv6Network("2000::/3")
"""All else of IPv6 is special, or not given to anybody (RFC 4291, 2.4)."""

_GLOBAL_WITHIN: Final[list[IPv4Network | IPv6Network]] = [
    IPv4Network("192.0.0.9/32"), IPv4Network("192.0.0.10/32"),
    *(
        IPv6Network(each)
        for each in (
            "2001:1::1/128", "2001:1::2/128", "2001:1::3/128", "2001:3::/32", "2001:4:112::/48",
            "2001:20::/28", "2001:30::/28",
        )
    ),
]  # fmt: skip
"""Parts of special networks that the registries call globally reachable."""

_WRAPPING: Final = [IPv6Network("::ffff:0:0/96"), IPv6Network("64:ff9b::/96")]
"""The last 32 bits of these are an address of IPv4: one that is mapped, and NAT64."""

_LAST_32_BITS: Final = 2**32 - 1


def is_public(text: str) -> bool:
    """Whether an address is one of the internet, also inside one that only wraps another.

    Raises:
        ValueError: if the text is not an address.
    """
    address = ip_address(text.partition("%")[0])
    if any(address in network for network in _WRAPPING):
        address = IPv4Address(int(address) & _LAST_32_BITS)
    if any(address in network for network in _GLOBAL_WITHIN):
        return True
    if isinstance(address, IPv6Address) and address not in _GLOBAL_UNICAST:
        return False
    special = _IPV4_SPECIAL if isinstance(address, IPv4Address) else _IPV6_SPECIAL
    return not any(address in network for network in special)
