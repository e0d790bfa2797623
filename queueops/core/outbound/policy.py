"""
Which addresses and URLs QueueOps may call on somebody's behalf. Pure functions.

Ranges are listed here rather than asked of `ipaddress`: Python 3.11's `is_global` calls NAT64,
6to4 and multicast addresses global.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import (
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    ip_address,
    ip_network,
)
from typing import Self
from urllib.parse import quote

from yarl import URL

from queueops.core.errors import QueueOpsError

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

MAX_URL_CHARACTERS = 8_192
LOOPBACK_SETTING = "QUEUEOPS_ALLOW_LOOPBACK_TARGETS"

LOOPBACK: tuple[Network, ...] = (ip_network("127.0.0.0/8"), ip_network("::1/128"))

# An allow-list may permit these: addresses of a private network, never of this machine or its cloud.
PRIVATE: tuple[Network, ...] = tuple(
    ip_network(text) for text in ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "fc00::/7")
)

# Instance metadata outside the link-local range: Alibaba, Azure, AWS over IPv6.
METADATA: frozenset[Address] = frozenset(
    ip_address(text) for text in ("100.100.100.200", "168.63.129.16", "fd00:ec2::254")
)

# IANA special-purpose registries (IPv4, IPv6), plus the deprecated 6to4 relays.
NOT_PUBLIC_V4: tuple[Network, ...] = tuple(
    ip_network(text)
    for text in (
        "0.0.0.0/8",
        "10.0.0.0/8",
        "100.64.0.0/10",
        "127.0.0.0/8",
        "169.254.0.0/16",
        "172.16.0.0/12",
        "192.0.0.0/24",
        "192.0.2.0/24",
        "192.88.99.0/24",
        "192.168.0.0/16",
        "198.18.0.0/15",
        "198.51.100.0/24",
        "203.0.113.0/24",
        "224.0.0.0/4",
        "240.0.0.0/4",
    )
)

# Only 2000::/3 is handed out as global unicast. Addresses outside of it (mapped and compatible IPv4, NAT64,
# unique-local, link-local, site-local, multicast, ...) are refused without being listed here.
GLOBAL_UNICAST_V6 = IPv6Network("2000::/3")
NOT_PUBLIC_V6: tuple[Network, ...] = tuple(
    ip_network(text)
    for text in (
        "2001::/23",  # protocol assignments, Teredo and benchmarking among them
        "2001:db8::/32",
        "2002::/16",  # 6to4: carries any IPv4 address
        "3fff::/20",
    )
)

_UNSAFE_IN_URL = re.compile(r"[\x00-\x20\x7f\\\ud800-\udfff]")
_NAME = re.compile(r"(?=.{1,253}\.?\Z)[a-z0-9_-]{1,63}(\.[a-z0-9_-]{1,63})*\.?", re.IGNORECASE)
_CREDENTIALS_IN_URL = re.compile(r"[^/?#]*//[^/?#]*@")
_PATH_AND_QUERY = re.compile(r"[^/?#]*//[^/?#]*([^#]*)(?:#.*)?")
_IN_URLS = "!#$%&'()*+,-./:;=?@[]_~"  # besides letters and digits
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*", re.IGNORECASE)


class OutboundRefused(QueueOpsError):
    """The target of an outbound call is not allowed."""

    code = "target_refused"
    status = 422
    detail_fields = ("host",)


@dataclass(frozen=True, slots=True)
class OutboundPolicy:
    """
    The addresses that one call may reach besides public ones. The default is none.

    Make a policy with `of`, which checks the allow-list.
    """

    allow_loopback: bool = False
    allowed_hosts: frozenset[str] = frozenset()
    allowed_networks: tuple[Network, ...] = ()

    @classmethod
    def of(cls, *, allow_loopback: bool = False, allow: Iterable[str] = ()) -> Self:
        """
        Build a policy from an allow-list of host names and CIDRs.

        Args:
            allow_loopback: For development: 127.0.0.0/8 and ::1, nothing else.
            allow: A name allows the private addresses that it resolves to; a CIDR or address allows itself.
                No entry allows loopback, link-local, multicast or metadata addresses.

        Raises:
            ValueError: An entry is no host name, or a network that no entry may allow.
        """
        hosts: set[str] = set()
        networks: list[Network] = []
        for entry in allow:
            try:
                network = ip_network(entry)
            except ValueError:
                hosts.add(_host_name(entry))
                continue
            if not any(_within(network, private) for private in PRIVATE):
                raise ValueError(f"{entry}: only private networks can be allowed.")
            networks.append(network)
        return cls(allow_loopback, frozenset(hosts), tuple(networks))

    def allows(self, host: str, address: str) -> bool:
        """Say whether a connection for `host` may go to `address`; False if that text is no address."""
        try:
            ip = ip_address(address)
        except ValueError:
            return False
        if any(ip in network for network in LOOPBACK):
            return self.allow_loopback
        if ip in METADATA:
            return False
        if is_public(ip):
            return True
        if not any(ip in network for network in PRIVATE):
            return False
        return host.rstrip(".").lower() in self.allowed_hosts or any(ip in network for network in self.allowed_networks)

    def check(self, host: str, address: str) -> None:
        """
        Raises:
            OutboundRefused: The address is not allowed. The message does not name it: callers must not
                learn what a private name resolves to.
        """
        if not self.allows(host, address):
            told = f" In development {LOOPBACK_SETTING}=on lets this machine's own be called." if is_local(host) else ""
            raise OutboundRefused(f"{host} is not a public address.{told}", host=host)


def is_local(host: str) -> bool:
    """Say whether a host is written as `localhost` or a loopback address; no name is looked up."""
    try:
        return any(ip_address(host) in network for network in LOOPBACK)
    except ValueError:
        return host == "localhost"


def is_public(ip: Address) -> bool:
    """Say whether an address belongs to the public internet."""
    if isinstance(ip, IPv4Address):
        return not any(ip in network for network in NOT_PUBLIC_V4)
    return ip in GLOBAL_UNICAST_V6 and not any(ip in network for network in NOT_PUBLIC_V6)


def parse_target(text: str, *, policy: OutboundPolicy) -> URL:
    """
    Return the URL to call, without its fragment. Check everything that needs no look-up of a name.

    Its path and query are as they were given: another spelling of a signed URL is another URL. Only characters that no
    URL may hold, such as letters outside ASCII, are percent-encoded.

    Raises:
        OutboundRefused: The text is no absolute http(s) URL, holds credentials, spells an address oddly, or names an
            address that is not allowed.
    """
    if len(text) > MAX_URL_CHARACTERS:
        raise OutboundRefused(f"The URL is longer than {MAX_URL_CHARACTERS:,} characters.")
    # Parsers disagree about these characters (some drop them, some turn \ into /), so they are refused.
    if _UNSAFE_IN_URL.search(text):
        raise OutboundRefused("The URL contains a space, a control character or a backslash.")
    try:
        url = URL(text)
        host, port = url.raw_host, url.port
    except ValueError:
        raise OutboundRefused("The URL cannot be parsed.") from None
    if url.scheme not in {"http", "https"}:
        raise OutboundRefused("Only http and https URLs can be called.")
    if not host or not port:
        raise OutboundRefused("The URL names no host.")
    if _CREDENTIALS_IN_URL.match(text):
        raise OutboundRefused("Put credentials into a header, not into the URL.", host=host)
    _check_host(host, policy)
    return _as_given(text, url)


def _as_given(text: str, url: URL) -> URL:
    found = _PATH_AND_QUERY.fullmatch(text)
    rest = found[1] if found else ""
    path = rest if rest.startswith("/") else f"/{rest}"
    return URL(f"{url.scheme}://{url.raw_authority}{ascii_of(path)}", encoded=True)


def ascii_of(text: str) -> str:
    """Percent-encode the characters that no URL may hold, and nothing else."""
    return quote(text, safe=_IN_URLS, errors="surrogateescape")


def _check_host(host: str, policy: OutboundPolicy) -> None:
    try:
        literal = ip_address(host)
    except ValueError:
        if not _is_name(host):
            raise OutboundRefused(
                f"{host[:253]} is neither a name nor an address in its usual form.", host=host
            ) from None
        return
    if "%" in host:
        raise OutboundRefused("The host has a zone.", host=host)
    policy.check(host, str(literal))


def _is_name(host: str) -> bool:
    # 127.1, 0x7f000001, 2130706433: the system's resolver takes these for addresses.
    return bool(_NAME.fullmatch(host)) and not _NUMBER.fullmatch(host.rstrip(".").rpartition(".")[2])


def _host_name(entry: str) -> str:
    if not _is_name(entry):
        raise ValueError(f"{entry!r} is neither a host name nor a network.")
    return entry.rstrip(".").lower()


def _within(inner: Network, outer: Network) -> bool:
    if isinstance(inner, IPv4Network) and isinstance(outer, IPv4Network):
        return inner.subnet_of(outer)
    if isinstance(inner, IPv6Network) and isinstance(outer, IPv6Network):
        return inner.subnet_of(outer)
    return False
