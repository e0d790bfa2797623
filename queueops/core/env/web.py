"""The web process."""

from dataclasses import dataclass
from typing import ClassVar

from queueops.core.values import parse
from queueops.core.values.numbers import MEGABYTE

from .setting import setting


@dataclass(frozen=True, kw_only=True)
class WebSettings:
    section: ClassVar[str] = "Web"

    debug: bool = setting(
        "Development mode. Turn it off in production: the rules for production then apply.",
        parse.BOOLEAN,
        default=True,
    )
    leave_seconds: float = setting(
        "So long a web process that is told to stop goes on taking requests while `/readyz` says 503, so that proxies "
        "send them elsewhere before its port closes. 0: not at all. QUEUEOPS_DRAIN_GRACE_SECONDS comes after it.",
        parse.number(0, 300),
        default=0.0,
    )
    secret_key: str = setting(
        "Signs sessions and task payloads, and is the same on every host: the database knows it, and another one does "
        "not start. In development it is made once and kept in the data directory.",
        parse.text(at_least=50),
        default="",
        shown_default="made once (development); required (production)",
        secret=True,
    )
    credential_keys: tuple[str, ...] = setting(
        "Encrypt the secrets of credentials, second factors and webhooks: the first key encrypts, each of them "
        "decrypts. In development one is made once and kept in the data directory; in production they must be set "
        "before the first of them is added.",
        parse.FERNET_KEYS,
        default=(),
        shown_default="made once (development); none (production)",
        secret=True,
    )
    payload_keys: tuple[tuple[str, str], ...] = setting(
        "Encrypt the payloads and results of projects that are set so, each key with a name of your choice: "
        "`2026b:KEY,2026a:KEY`. The first encrypts, each of them decrypts; the name is stored with what it encrypted. "
        "The same on every web process and worker. In development one is made once and kept in the data directory.",
        parse.NAMED_KEYS,
        default=(),
        shown_default="made once (development); none (production)",
        secret=True,
    )
    target_credential_keys: tuple[str, ...] = setting(
        "For `manage.py move_project` alone: the QUEUEOPS_CREDENTIAL_KEYS of the installation that a project moves to.",
        parse.FERNET_KEYS,
        default=(),
        shown_default="none",
        secret=True,
    )
    target_payload_keys: tuple[tuple[str, str], ...] = setting(
        "For `manage.py move_project` alone: the QUEUEOPS_PAYLOAD_KEYS of the installation that a project moves to.",
        parse.NAMED_KEYS,
        default=(),
        shown_default="none",
        secret=True,
    )
    allowed_hosts: tuple[str, ...] = setting(
        "Host names this installation answers to. Required in production; `*` is refused there.",
        parse.WORDS,
        default=("localhost", "127.0.0.1", "[::1]"),
    )
    csrf_trusted_origins: tuple[str, ...] = setting(
        "Origins, each with its scheme, whose forms are accepted: needed behind a proxy that ends TLS.",
        parse.ORIGINS,
        default=(),
    )
    tls: bool = setting(
        "Cookies only over HTTPS, plain HTTP redirected, HSTS. Must be on in production.",
        parse.BOOLEAN,
        default=False,
    )
    tls_proxy: bool = setting(
        "A proxy in front ends TLS, sets `X-Forwarded-Proto`, removing what clients sent, and adds the client's "
        "address to the end of `X-Forwarded-For`.",
        parse.BOOLEAN,
        default=False,
    )
    host: str = setting("Address the web process listens on.", parse.text(), default="127.0.0.1")
    port: int = setting("Port the web process listens on.", parse.PORT, default=8000)
    max_body_mb: int = setting(
        "Largest body of a batch submission, in MB; it is cut off before anything buffers it.",
        parse.integer(1, 10_000),
        default=200,
    )
    spool_mb: int = setting(
        "Bodies that a web process keeps on its disk at once, in MB, while they come in and are carried out; beyond, "
        "503 `overloaded`. Never less than QUEUEOPS_SPOOL_PROJECT_MB.",
        parse.integer(1, 1_000_000),
        default=512,
    )
    spool_project_mb: int = setting(
        "The same of one project, by all of its keys and users, or of one person. Never less than "
        "QUEUEOPS_MAX_BODY_MB.",
        parse.integer(1, 1_000_000),
        default=200,
    )
    least_body_rate: float = setting(
        "Bytes a second that a body must bring, but for its first 15 seconds; slower ones are answered with 408 "
        "`body_too_slow`, for they would hold their place for ever.",
        parse.number(1, 10_000_000),
        default=20_000.0,
    )
    request_seconds: float = setting(
        "How long a request may be carried out, in seconds, before it is given up and answered with 413 `out_of_time`. "
        "Checked between the jobs of a batch.",
        parse.number(1, 86_400),
        default=120.0,
    )
    cell: str = setting(
        "What this installation is called where there are several, each with projects of its own: one to four small "
        "letters and digits. New API keys begin with `qo_<cell>_`, so that a proxy can tell where a request belongs.",
        parse.CELL,
        default="",
        shown_default="unset: new keys begin with `qo_`",
    )
    requests_per_minute: int = setting(
        "Requests that one API key may send to one web process in a minute, unless the key has a rate of its own; more "
        "are answered with 429.",
        parse.integer(1, 10_000_000),
        default=60_000,
    )
    user_requests_per_minute: int = setting(
        "The same for each end user who comes with a token, and for each address that reads without credentials.",
        parse.integer(1, 10_000_000),
        default=600,
    )
    cors_origins: tuple[str, ...] = setting(
        "Origins, each with its scheme, whose pages may call the API and open websockets from a browser, with a key or "
        "a token; cookies never count there.",
        parse.ORIGINS,
        default=(),
        shown_default="none",
    )
    metrics_token: str = setting(
        "Who reads `/metrics` must show it as `Authorization: Bearer`. Unset: only this machine may read them, and "
        "nobody through a proxy.",
        parse.text(at_least=16),
        default="",
        shown_default="unset: this machine only",
        secret=True,
    )
    log_format: str = setting(
        "`json`: an object a line, for log collectors; `text`: for people.",
        parse.one_of("json", "text"),
        default="",
        shown_default="`text` (development); `json` (production)",
    )
    log_level: str = setting(
        "Least level that is logged.",
        parse.one_of("DEBUG", "INFO", "WARNING", "ERROR"),
        default="INFO",
    )

    @property
    def spool_project_bytes(self) -> int:
        return max(self.spool_project_mb, self.max_body_mb) * MEGABYTE

    @property
    def spool_bytes(self) -> int:
        return max(self.spool_mb * MEGABYTE, self.spool_project_bytes)

    @property
    def shown_log_format(self) -> str:
        return self.log_format or ("text" if self.debug else "json")
