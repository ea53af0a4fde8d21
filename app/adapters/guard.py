"""Which addresses an endpoint that a user names may lie at (server-side request forgery).

The decision is made on the address that is connected to, never on the name: `transport.py` resolves
a host once, asks `AddressGuard.check`, and connects to the very address that passed.
"""

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass

from app.errors import BlockedAddressError

IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address
IPNetwork = ipaddress.IPv4Network | ipaddress.IPv6Network

#: Services of cloud providers that hand out credentials or control the machine, outside the
#: link-local range (169.254.0.0/16, fe80::/10), which is refused as a whole.
_METADATA = frozenset(
    ipaddress.ip_address(text)
    for text in (
        "100.100.100.200",  # Alibaba Cloud
        "168.63.129.16",  # Azure's wire server
        "192.0.0.192",  # Oracle Cloud
        "fd00:ec2::254",  # AWS
        "fd20:ce::254",  # Google Cloud
    )
)
_THIS_NETWORK = ipaddress.ip_network("0.0.0.0/8")  # RFC 1122: reaches the machine itself on Linux
_FUTURE_USE = ipaddress.ip_network("240.0.0.0/4")  # with the limited broadcast address
_NAT64 = ipaddress.ip_network("64:ff9b::/96")  # RFC 6052
_IPV4_COMPATIBLE = ipaddress.ip_network("::/96")  # RFC 4291, deprecated but routable


@dataclass(frozen=True, slots=True, kw_only=True)
class AddressGuard:
    """Decides whether an address may be called.

    Link-local, metadata, multicast, unspecified and reserved addresses are always refused.
    Private ones (RFC 1918, carrier-grade NAT, unique local) and loopback pass when
    `allow_private` is set or one of `allowed_networks` holds them. An IPv6 address that
    carries an IPv4 address (mapped, compatible, 6to4, Teredo, NAT64) is judged by that one.

    Attributes:
        allow_private: True when the server itself listens on loopback only: whoever can call it
            already sits on this machine.
        allowed_networks: Ranges that the operator opened.
    """

    allow_private: bool = False
    allowed_networks: tuple[IPNetwork, ...] = ()

    def check(self, address: IPAddress) -> None:
        """Refuse a forbidden address.

        Raises:
            BlockedAddressError: Names the address, why, and the setting that would allow it.
        """
        for part in tuple(_carried(address)) or (address,):
            if reason := _always_refused(part):
                raise BlockedAddressError(
                    f"The endpoint's address {address} is {reason}; those are never called."
                )
            if kind := _restricted(part):
                self._check_restricted(address, part, kind)

    def _check_restricted(self, address: IPAddress, part: IPAddress, kind: str) -> None:
        if self.allow_private or any(part in network for network in self.allowed_networks):
            return
        raise BlockedAddressError(
            f"The endpoint's address {address} is {kind}. This server is reachable from other "
            f"machines, so it calls only public addresses; to allow this one, add {part}"
            f"/{part.max_prefixlen} or its network to the setting SEXTANT_ALLOWED_NETWORKS."
        )


def _always_refused(address: IPAddress) -> str | None:
    if address in _METADATA or address.is_link_local:
        return "a link-local or cloud metadata address"
    if address.is_multicast:
        return "a multicast address"
    if address.is_unspecified or address in _THIS_NETWORK:
        return "the unspecified address"
    if address in _FUTURE_USE:
        return "a reserved address"
    return None


def _restricted(address: IPAddress) -> str | None:
    if address.is_loopback:
        return "a loopback address"
    is_site_local = isinstance(address, ipaddress.IPv6Address) and address.is_site_local
    if is_site_local or not address.is_global:
        return "a private address"
    return None


def _carried(address: IPAddress) -> Iterable[ipaddress.IPv4Address]:
    """IPv4 addresses that packets to an IPv6 `address` end at, if it carries any."""
    if isinstance(address, ipaddress.IPv4Address):
        return ()
    low = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    if address.ipv4_mapped:
        return (address.ipv4_mapped,)
    if address.sixtofour:
        return (address.sixtofour,)
    if address.teredo:
        return address.teredo
    if address in _NAT64 or (address in _IPV4_COMPATIBLE and int(address) > 1):
        return (low,)
    return ()
