import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.adapters.guard import AddressGuard, literal_address
from app.errors import BlockedAddressError

CLOSED = AddressGuard()
LOCAL = AddressGuard(allow_private=True)


def _words(text: str) -> list[str]:
    return text.split()


ALWAYS_REFUSED = _words(
    """
    169.254.169.254 169.254.0.1 fe80::1 fe80::1%eth0 fd00:ec2::254 fd20:ce::254 100.100.100.200
    168.63.129.16 192.0.0.192 0.0.0.0 0.1.2.3 :: 224.0.0.1 ff02::1 255.255.255.255 240.0.0.1
    ::ffff:169.254.169.254 ::ffff:0.0.0.0 ::169.254.169.254 64:ff9b::a9fe:a9fe 2002:a9fe:a9fe::1
    64:ff9b:1::1 64:ff9b:1:a9fe:a9:fe00:: 64:ff9b:1:ffff:ffff:ffff:808:808 ::ffff:0:a9fe:a9fe
    ::ffff:0:0:0 2001:0:a9fe:a9fe::1 2001:0:808:808:0:0:5601:5601 2001:db8::5efe:a9fe:a9fe
    2606:4700::200:5efe:a9fe:a9fe 2002:808:808::5efe:a9fe:a9fe fd00:42::42 fd00:ec2::23
    fd00:c1::a9fe:a9fe fd00:ec2::254%eth0 169.254.170.2
    """
)
PRIVATE = _words(
    """
    127.0.0.1 127.8.9.1 ::1 ::ffff:127.0.0.1 10.0.0.1 172.16.0.1 192.168.1.1 100.64.0.1 fc00::1
    fd12:3456::1 fec0::1 ::ffff:10.0.0.1 64:ff9b::7f00:1 198.18.0.1 192.0.2.1 192.0.0.9
    192.88.99.1 2001:db8::1 2001:20::1 3fff::1 4000::1 100::1 ::ffff:0:a00:1 2606:4700::5efe:a00:1
    """
)
PUBLIC = _words(
    """
    8.8.8.8 93.184.216.34 2606:4700::1111 ::ffff:8.8.8.8 64:ff9b::808:808 ::ffff:0:808:808
    """
)


@pytest.mark.parametrize("address", ALWAYS_REFUSED)
def test_dangerous_addresses_are_refused_whatever_is_allowed(address: str) -> None:
    everything = (ipaddress.ip_network("0.0.0.0/0"), ipaddress.ip_network("::/0"))
    for guard in (CLOSED, LOCAL, AddressGuard(allowed_networks=everything)):
        with pytest.raises(BlockedAddressError, match="which Sextant never calls"):
            guard.check(ipaddress.ip_address(address))


@pytest.mark.parametrize("address", PRIVATE)
def test_private_addresses_need_a_server_on_loopback_and_the_message_names_the_setting(
    address: str,
) -> None:
    LOCAL.check(ipaddress.ip_address(address))
    with pytest.raises(BlockedAddressError, match="SEXTANT_ALLOWED_NETWORKS") as caught:
        CLOSED.check(ipaddress.ip_address(address))
    assert str(ipaddress.ip_address(address)) in caught.value.detail


@pytest.mark.parametrize("address", PUBLIC)
def test_public_addresses_pass(address: str) -> None:
    CLOSED.check(ipaddress.ip_address(address))


def test_an_allowed_network_allows_only_itself() -> None:
    guard = AddressGuard(allowed_networks=(ipaddress.ip_network("10.1.0.0/16"),))
    guard.check(ipaddress.ip_address("10.1.2.3"))
    guard.check(ipaddress.ip_address("::ffff:10.1.2.3"))
    for address in ("10.2.0.1", "127.0.0.1", "192.168.0.1"):
        with pytest.raises(BlockedAddressError):
            guard.check(ipaddress.ip_address(address))


@given(st.integers(0, 2**32 - 1))
def test_an_ipv6_address_is_judged_by_the_ipv4_address_it_carries(number: int) -> None:
    plain = ipaddress.IPv4Address(number)
    carriers = [
        ipaddress.IPv6Address(0xFFFF << 32 | number),
        ipaddress.IPv6Address((0x64FF9B << 96) | number),
        ipaddress.IPv6Address((0x2002 << 112) | (number << 80)),
        ipaddress.IPv6Address((0xFFFF << 48) | number),
    ]
    assert {_verdict(carrier) for carrier in carriers} == {_verdict(plain)}


@pytest.mark.parametrize(
    ("host", "address"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("127.1", "127.0.0.1"),
        ("0x7f000001", "127.0.0.1"),
        ("2130706433", "127.0.0.1"),
        ("0177.0.0.1", "127.0.0.1"),
        ("127.0.0.1.", "127.0.0.1"),
        ("LOCALHOST.", "127.0.0.1"),
        ("a.localhost", "127.0.0.1"),
        ("::1", "::1"),
        ("localhost.example", None),
        ("example.com", None),
    ],
)
def test_every_spelling_of_an_address_is_known(host: str, address: str | None) -> None:
    found = literal_address(host)
    assert (found and str(found)) == address


def _verdict(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> str:
    try:
        CLOSED.check(address)
    except BlockedAddressError as exc:
        return exc.detail.replace(str(address), "it").split(".")[0]
    return "passes"
