from collections.abc import Callable

import pytest

from queueops.core.outbound.policy import OutboundPolicy, OutboundRefused, parse_target
from tests.support.all_faults import all_faults

pytestmark = pytest.mark.proves("S6")

STRICT = OutboundPolicy()

OF_NO_PUBLIC_NETWORK = """
0.0.0.0 0.1.2.3 10.0.0.1 100.64.0.1 100.127.255.254 100.100.100.200 127.0.0.1 127.255.255.254 168.63.129.16
169.254.169.254 172.16.0.1 172.31.255.255 192.0.0.192 192.0.2.1 192.88.99.1 192.168.1.1 198.18.0.1 198.51.100.7
203.0.113.9 224.0.0.1 239.255.255.255 240.0.0.1 255.255.255.255 :: ::1 ::127.0.0.1 ::ffff:127.0.0.1
::ffff:8.8.8.8 64:ff9b::7f00:1 64:ff9b::808:808 64:ff9b:1::a00:1 100::1 2001::1 2001:0:7f00:1:: 2001:10::1
2001:db8::1 2002:7f00:1:: 3fff::1 5f00::1 fc00::1 fd00:ec2::254 fe80::1 fe80::1%eth0 fec0::1 ff02::1
"""
NOT_PUBLIC = OF_NO_PUBLIC_NETWORK.split()
NOT_PLAIN = [
    "",
    "/relative",
    "//name.example/",
    "ftp://name.example/",
    "file:///etc/passwd",
    "gopher://name.example/",
    "http://",
    "http:///path",
    "http://:80/",
    "http://user@name.example/",
    "http://user:secret@name.example/",
    "http://@name.example/",
    "http://name.example\\@127.0.0.1/",
    "http://name.example/\r\nX-Evil: 1",
    "http://name.example/a b",
    "http://na\tme.example/",
    "http://name.example:99999/",
    "http://name.example:port/",
    "http://[::1",
    "http://[fe80::1%25eth0]/",
    "http://127.0.0.1%00.example/",
    "http://name.example/" + "a" * 9_000,
    "http://name.example/\ud800",
    "http://*/",
    "http://a..example/",
    "http://.example/",
    "http://name.example../",
    "http://" + "a" * 64 + ".example/",
    "http://" + "a." * 130 + "example/",
]


def all_of(policy: OutboundPolicy, addresses: list[str], *, allowed: Callable[[str], bool]) -> None:
    with all_faults() as of:
        for address in addresses:
            with of(address):
                assert policy.allows("name.example", address) is allowed(address)


def test_an_address_that_is_not_public_is_refused():
    all_of(STRICT, NOT_PUBLIC, allowed=lambda _: False)


def test_a_public_address_is_allowed():
    public = ["1.1.1.1", "8.8.8.8", "172.15.0.1", "172.32.0.1", "100.63.0.1", "100.128.0.1", "2606:4700::1111"]
    all_of(STRICT, public, allowed=lambda _: True)


def test_what_is_no_address_is_refused():
    all_of(STRICT, ["", "name.example", "127.1", "1.1.1.1:80", "0x7f000001"], allowed=lambda _: False)


def test_the_development_setting_lets_only_loopback_pass():
    loopback = {"127.0.0.1", "127.255.255.254", "::1"}
    all_of(OutboundPolicy.of(allow_loopback=True), NOT_PUBLIC, allowed=loopback.__contains__)


def test_an_allowed_name_reaches_its_private_addresses_only():
    policy = OutboundPolicy.of(allow=["Sheets.Internal."])
    assert policy.allows("sheets.internal", "10.1.2.3")
    assert policy.allows("SHEETS.internal.", "fd12::1")
    assert not policy.allows("other.internal", "10.1.2.3")
    for address in ("127.0.0.1", "169.254.169.254", "100.100.100.200", "fd00:ec2::254", "0.1.2.3", "::1"):
        assert not policy.allows("sheets.internal", address)


def test_an_allowed_network_reaches_itself_only():
    policy = OutboundPolicy.of(allow=["10.1.0.0/16", "fd12::/64"])
    assert policy.allows("any.example", "10.1.2.3")
    assert policy.allows("any.example", "fd12::7")
    assert not policy.allows("any.example", "10.2.0.1")


def test_an_allow_list_that_would_lift_more_than_private_networks_is_refused():
    everything = ["127.0.0.0/8", "0.0.0.0/0", "::/0", "169.254.169.254", "10.0.0.0/7"]
    with all_faults() as of:
        for entry in [*everything, "10.0.0.1/8", "", "a b", "127.1", "*"]:
            with of(repr(entry)), pytest.raises(ValueError, match=r"."):
                OutboundPolicy.of(allow=[entry])


def test_a_url_that_is_not_plain_is_refused():
    with all_faults() as of:
        for url in NOT_PLAIN:
            with of(ascii(url)), pytest.raises(OutboundRefused):
                parse_target(url, policy=STRICT)


def test_a_public_url_passes_without_its_fragment():
    target = parse_target("https://name.example:8443/path?q=1#part", policy=STRICT)
    assert str(target) == "https://name.example:8443/path?q=1"


def test_a_refusal_does_not_say_what_a_name_resolves_to():
    with pytest.raises(OutboundRefused) as refused:
        STRICT.check("db.internal", "10.9.8.7")
    assert "10.9.8.7" not in str(refused.value.as_dict())
