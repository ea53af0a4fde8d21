"""Which addresses may be called for a user's endpoint (against server-side request forgery).

The decision depends on the address of the connection, never on the name: `connections.py` resolves
a host once, calls `AddressGuard.check`, and connects to the address that passed.
"""

import ipaddress
import socket
from dataclasses import dataclass

from app.acting import present
from app.errors import BlockedAddressError, FieldProblem

IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address
IPNetwork = ipaddress.IPv4Network | ipaddress.IPv6Network

#: Services of cloud providers that give credentials or control the machine, outside the link-local
#: range (169.254.0.0/16, fe80::/10), which is refused as a whole.
_METADATA = frozenset(
    ipaddress.ip_address(text)
    for text in (
        "100.100.100.200",  # Alibaba Cloud
        "168.63.129.16",  # Azure's wire server
        "192.0.0.192",  # Oracle Cloud
        "fd00:ec2::254",  # AWS
        "fd00:ec2::23",  # AWS, credentials of pods
        "fd20:ce::254",  # Google Cloud
        "fd00:42::42",  # Scaleway
        "fd00:c1::a9fe:a9fe",  # Oracle Cloud
    )
)
_THIS_NETWORK = ipaddress.ip_network("0.0.0.0/8")  # RFC 1122: reaches the machine itself on Linux
_FUTURE_USE = ipaddress.ip_network("240.0.0.0/4")  # with the limited broadcast address
_NAT64 = ipaddress.ip_network("64:ff9b::/96")  # RFC 6052
_IPV4_COMPATIBLE = ipaddress.ip_network("::/96")  # RFC 4291, deprecated but routable
_IPV4_TRANSLATED = ipaddress.ip_network("::ffff:0:0:0/96")  # RFC 7915, SIIT
#: RFC 8215. Each translator chooses where the IPv4 address stands in the address, so a metadata
#: service cannot be recognised.
_LOCAL_NAT64 = ipaddress.ip_network("64:ff9b:1::/48")
_ISATAP = frozenset({0x00005EFE, 0x02005EFE})  # RFC 5214: upper half of the interface id
_GLOBAL_UNICAST = ipaddress.ip_network("2000::/3")
#: Special ranges of IANA's registries that Python takes for global.
_NOT_GLOBAL: tuple[IPNetwork, ...] = tuple(
    ipaddress.ip_network(text)
    for text in (
        "192.0.0.0/24",  # RFC 6890, protocol assignments
        "192.88.99.0/24",  # RFC 7526, relays of 6to4
        "2001::/23",  # RFC 2928, protocol assignments
        "3fff::/20",  # RFC 9637, documentation
    )
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AddressGuard:
    """Decides whether an address may be called.

    Link-local, metadata, multicast, unspecified, reserved and local-use NAT64 addresses are always
    refused, even inside `allowed_networks`. Private addresses (RFC 1918, carrier-grade NAT, unique
    local, and ranges that IANA has not made global) and loopback pass if `allow_private` is set or
    one of `allowed_networks` contains them. For an IPv6 address that carries an IPv4 address
    (mapped, translated, compatible, 6to4, Teredo, NAT64), the IPv4 address decides; for ISATAP,
    both must pass.

    Attributes:
        allow_private: True if the server itself listens on loopback only, so that its callers are
            on this machine, or behind a proxy on it. Requests through a proxy are recognised only
            by a proxy's header; the operator must rule out proxies that send none.
        allowed_networks: Ranges that the operator has opened.
    """

    allow_private: bool = False
    allowed_networks: tuple[IPNetwork, ...] = ()

    def check(self, address: IPAddress) -> None:
        """Refuse a forbidden address.

        Raises:
            BlockedAddressError: The address is refused; names the reason and the setting for it.
        """
        ends = _ends(address)
        if reason := next(filter(None, map(_always_refused, ends)), None):
            raise BlockedAddressError(
                f"The endpoint's address {address} is {reason}, which Sextant never calls."
            )
        if self.allow_private and not present().is_from_elsewhere:
            return
        for part in ends:
            kind = _restricted(part)
            if kind and not any(part in network for network in self.allowed_networks):
                raise BlockedAddressError(
                    f"The endpoint's address {address} is {kind}. This server is reachable from "
                    "other machines or through a proxy, so it calls only public addresses; to "
                    f"allow this one, add {part}/{part.max_prefixlen} or its network to the "
                    "setting SEXTANT_ALLOWED_NETWORKS."
                )

    def check_host(self, host: str, *, at: str) -> None:
        """Refuse a URL's host if it is a forbidden address; names are checked at each call.

        Raises:
            BlockedAddressError: As for `check`; the problem has the pointer `at`.
        """
        address = literal_address(host)
        try:
            if address is not None:
                self.check(address)
        except BlockedAddressError as exc:
            exc.problems = (FieldProblem(at, exc.detail),)
            raise


def _always_refused(address: IPAddress) -> str | None:
    if address in _METADATA or address.is_link_local:
        return "a link-local or cloud metadata address"
    if address.is_multicast:
        return "a multicast address"
    if address.is_unspecified or address in _THIS_NETWORK:
        return "the unspecified address"
    if address in _FUTURE_USE:
        return "a reserved address"
    if address in _LOCAL_NAT64:
        return "an address of local-use NAT64"
    return None


def _restricted(address: IPAddress) -> str | None:
    if address.is_loopback:
        return "a loopback address"
    if not address.is_global or any(address in network for network in _NOT_GLOBAL):
        return "a private address"
    if isinstance(address, ipaddress.IPv6Address) and address not in _GLOBAL_UNICAST:
        return "a private address"
    return None


def _ends(address: IPAddress) -> tuple[IPAddress, ...]:
    """Addresses that packets to `address` may reach: itself, or IPv4 addresses that it carries."""
    if isinstance(address, ipaddress.IPv4Address):
        return (address,)
    number = int(address)
    plain = ipaddress.IPv6Address(number)  # without a zone (%eth0), which is no part of the address
    low = ipaddress.IPv4Address(number & 0xFFFFFFFF)
    host = (low,) if (number >> 32) & 0xFFFFFFFF in _ISATAP else ()
    if plain.ipv4_mapped:
        return (plain.ipv4_mapped,)
    if plain.sixtofour:
        return (plain.sixtofour, *host)
    if plain.teredo:
        return plain.teredo
    if plain in _NAT64 or plain in _IPV4_TRANSLATED or (plain in _IPV4_COMPATIBLE and number > 1):
        return (low,)
    return (plain, *host)


def literal_address(host: str) -> IPAddress | None:
    """The address that a URL's host denotes without a look-up; None for a name.

    It accepts all spellings that resolvers accept: `127.1`, `0x7f000001`, `2130706433`, a dot at
    the end, and `localhost` with its subdomains.
    """
    host = host.strip("[]").removesuffix(".").lower()
    if host == "localhost" or host.endswith(".localhost"):
        return ipaddress.IPv4Address("127.0.0.1")
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        pass
    try:
        return ipaddress.IPv4Address(socket.inet_aton(host))
    except (OSError, ValueError):
        return None
