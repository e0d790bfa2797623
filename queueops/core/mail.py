"""How Django reaches the mail server."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

PORTS = {"smtp": 25, "smtp+tls": 587, "smtps": 465}
MAIL_TIMEOUT_SECONDS = 20


@dataclass(frozen=True, slots=True)
class MailServer:
    """A mail server; the fields are named as Django's settings EMAIL_*."""

    host: str
    port: int
    user: str
    password: str
    use_tls: bool
    use_ssl: bool


def mail_server(url: str) -> MailServer:
    """Read `smtp://user:password@host:port`; without a URL the host is empty, and no mail is sent."""
    parts = urlsplit(url)
    return MailServer(
        host=parts.hostname or "",
        port=parts.port or PORTS.get(parts.scheme, 25),
        user=unquote(parts.username or ""),
        password=unquote(parts.password or ""),
        use_tls=parts.scheme == "smtp+tls",
        use_ssl=parts.scheme == "smtps",
    )
