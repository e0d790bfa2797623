"""Parsers of setting values: each states its rule in words and raises ValueError on anything else."""

import base64
import binascii
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from psycopg import ProgrammingError
from psycopg.conninfo import conninfo_to_dict

MAX_PORT = 65_535


@dataclass(frozen=True, slots=True)
class Parser:
    """`rule` completes the sentence "X must be ..."."""

    rule: str
    parse: Callable[[str], Any]


_ON = frozenset({"1", "true", "yes", "on"})
_OFF = frozenset({"0", "false", "no", "off"})
_FERNET_KEY_BYTES = 32
_KEY_NAME = re.compile(r"[A-Za-z0-9_-]{1,40}")


def _boolean(value: str) -> bool:
    if value.lower() not in _ON | _OFF:
        raise ValueError(value)
    return value.lower() in _ON


def _path(value: str) -> Path:
    return Path(value).expanduser().absolute()


def _store(value: str) -> str:
    if not value.startswith("s3://"):
        return str(_path(value))
    if not re.fullmatch(r"s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](/[A-Za-z0-9._-]+)*/?", value):
        raise ValueError(value)
    return value


def _words(value: str) -> tuple[str, ...]:
    words = tuple(word for word in value.replace(",", " ").split() if word)
    if not words:
        raise ValueError(value)
    return words


def _private_targets(value: str) -> tuple[str, ...]:
    from queueops.core.outbound.policy import OutboundPolicy  # imported here, as importing yarl takes long

    words = _words(value)
    OutboundPolicy.of(allow=words)
    return words


def _origins(value: str) -> tuple[str, ...]:
    origins = _words(value)
    for origin in origins:
        parts = urlsplit(origin)
        if parts.scheme not in {"http", "https"} or not parts.netloc or parts.path:
            raise ValueError(origin)
    return origins


def _postgres_url(value: str) -> str:
    if not value.startswith(("postgresql://", "postgres://")):
        raise ValueError(value)
    try:
        parts = conninfo_to_dict(value)
    except ProgrammingError as error:
        raise ValueError(value) from error
    ports = [int(port) for port in str(parts.get("port") or "5432").split(",")]
    if not parts.get("dbname") or not all(0 < port <= MAX_PORT for port in ports):
        raise ValueError(value)
    return value


def _fernet_keys(value: str) -> tuple[str, ...]:
    keys = _words(value)
    for key in keys:
        try:
            size = len(base64.b64decode(key, altchars=b"-_", validate=True))
        except binascii.Error as error:
            raise ValueError(key) from error
        if size != _FERNET_KEY_BYTES:
            raise ValueError(key)
    return keys


def _named_keys(value: str) -> tuple[tuple[str, str], ...]:
    pairs = [pair.partition(":") for pair in (word.strip() for word in value.split(",")) if pair]
    names = [name for name, _, _ in pairs]
    if len(set(names)) < len(names) or not all(_KEY_NAME.fullmatch(name) for name in names):
        raise ValueError(names)  # the error must show no key
    return tuple((name, *_fernet_keys(key)) for name, _, key in pairs)  # type: ignore[misc]  # one key each


def _web_origin(value: str) -> str:
    origin = value.rstrip("/")
    if _origins(origin) != (origin,):
        raise ValueError(value)
    return origin


def _issuer(value: str) -> str:
    parts = urlsplit(value)
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.query or parts.fragment:
        raise ValueError(value)
    return value  # with its slash at the end, if it has one: tokens name the issuer to the letter


def _group_roles(value: str) -> tuple[tuple[str, str], ...]:
    """Split at semicolons and the last `=`: group names of a directory may hold commas and equals signs."""
    pairs = [pair.rpartition("=") for pair in value.split(";") if pair.strip()]
    found = tuple((group.strip(), role.strip()) for group, _, role in pairs)
    if not found or not all(group and role for group, role in found):
        raise ValueError(value)
    return found


def _audit_target(value: str) -> str:
    parts = urlsplit(value)
    if parts.scheme == "file":
        if parts.netloc or not parts.path.startswith("/") or parts.path.endswith("/"):
            raise ValueError(value)
    elif parts.scheme not in {"syslog+tcp", "syslog+tls", "syslog+udp"} or not parts.hostname or not parts.port:
        raise ValueError(value)
    return value


def _smtp_url(value: str) -> str:
    parts = urlsplit(value)
    if parts.scheme not in {"smtp", "smtps", "smtp+tls"} or not parts.hostname or parts.path.strip("/"):
        raise ValueError(value)
    _ = parts.port  # raises ValueError when it is no port
    return value


def integer(low: int, high: int) -> Parser:
    def parse(value: str) -> int:
        number = int(value)
        if not low <= number <= high:
            raise ValueError(value)
        return number

    return Parser(f"a whole number from {low:,} to {high:,}", parse)


def number(low: float, high: float) -> Parser:
    def parse(value: str) -> float:
        figure = float(value)
        if not low <= figure <= high:
            raise ValueError(value)
        return figure

    return Parser(f"a number from {low:g} to {high:g}", parse)


def text(*, at_least: int = 1) -> Parser:
    def parse(value: str) -> str:
        if len(value) < at_least:
            raise ValueError(value)
        return value

    return Parser(f"at least {at_least} characters long" if at_least > 1 else "text", parse)


def one_of(*choices: str) -> Parser:
    def parse(value: str) -> str:
        if value not in choices:
            raise ValueError(value)
        return value

    return Parser("one of " + ", ".join(choices), parse)


def _cell(value: str) -> str:
    if not re.fullmatch(r"[a-z0-9]{1,4}", value):
        raise ValueError(value)
    return value


def _currency(value: str) -> str:
    if not re.fullmatch(r"[A-Z]{3}", value):
        raise ValueError(value)
    return value


BOOLEAN = Parser("on or off", _boolean)
PORT = integer(1, 65_535)
CURRENCY = Parser("a currency's three letters, such as USD", _currency)
CELL = Parser("one to four small letters and digits", _cell)
PATH = Parser("a path", _path)
STORE = Parser("a path, or s3://bucket/prefix", _store)
PRIVATE_TARGETS = Parser("host names and private networks, separated by commas", _private_targets)
WORDS = Parser("one or more words, separated by commas", _words)
ORIGINS = Parser("origins such as https://queue.example.org, separated by commas", _origins)
ORIGIN = Parser("an origin such as https://queue.example.org", _web_origin)
ISSUER = Parser("an address such as https://login.example.org/realms/staff", _issuer)
GROUP_ROLES = Parser("pairs such as `team-ops=operator; sre=administrator`", _group_roles)
AUDIT_TARGET = Parser("syslog+tcp://, syslog+tls:// or syslog+udp://, then host:port, or file:///path", _audit_target)
SMTP_URL = Parser("smtp://, smtps:// or smtp+tls://, then user:password@host:port", _smtp_url)
POSTGRES_URL = Parser("postgresql://user:password@host:port/name", _postgres_url)
NAMED_KEYS = Parser(
    "names (letters, digits, - and _; each once) with a Fernet key each, name:key, newest first, separated by commas",
    _named_keys,
)
FERNET_KEYS = Parser("Fernet keys (32 bytes in URL-safe Base64), newest first, separated by commas", _fernet_keys)
