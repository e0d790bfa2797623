"""
The settings that come from the environment, each declared once as data.

`read()` checks all of them at once; docs/reference/settings.md is generated from the same
declarations. Nothing else in the project reads `os.environ` for configuration.
"""

import importlib.machinery
import importlib.util
from collections.abc import Callable, Mapping
from dataclasses import Field, dataclass, field, fields
from pathlib import Path
from typing import Any

from queueops.core.errors import QueueOpsError

from .values import parse


class BadConfiguration(QueueOpsError):
    """The environment holds values that QueueOps cannot start with."""

    code = "bad_configuration"
    status = 500

    def __init__(self, problems: list[str]) -> None:
        self.problems = problems
        super().__init__("QueueOps cannot start:\n" + "\n".join(f"  - {line}" for line in problems))


MEGABYTE = 1_000_000
ENVELOPE_BYTES = 100_000  # what surrounds the largest payload in a request: keys, names, form fields


@dataclass(frozen=True, slots=True)
class Setting:
    """
    What a setting's name, text and page entry are made from.

    Attributes:
        shown_default: What the page says where the default is computed or long.
        secret: The value is never shown in a message.
    """

    variable: str
    section: str
    text: str
    parse: Callable[[str], Any]
    rule: str
    shown_default: str
    secret: bool


def setting(
    section: str,
    text: str,
    parser: parse.Parser,
    *,
    default: Any,
    variable: str = "",
    shown_default: str = "",
    secret: bool = False,
) -> Any:
    """Declare one field of `Environment`; the variable is `QUEUEOPS_<FIELD>` unless named."""
    declared = Setting(variable, section, text, parser.parse, parser.rule, shown_default, secret)
    return field(default=default, metadata={"setting": declared})


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """The settings, as `django.conf.settings.QUEUEOPS`: `settings.QUEUEOPS.lease_seconds`."""

    debug: bool = setting(
        "Web",
        "Development mode. Turn it off in production: the rules for production then apply.",
        parse.BOOLEAN,
        default=True,
    )
    secret_key: str = setting(
        "Web",
        "Signs sessions and task payloads, and is the same on every host: the database knows it, and another one does "
        "not start. In development it is made once and kept in the data directory.",
        parse.text(at_least=50),
        default="",
        shown_default="made once (development); required (production)",
        secret=True,
    )
    credential_keys: tuple[str, ...] = setting(
        "Web",
        "Encrypt the secrets of credentials, second factors and webhooks: the first key encrypts, each of them "
        "decrypts. In development one is made once and kept in the data directory; in production they must be set "
        "before the first of them is added.",
        parse.FERNET_KEYS,
        default=(),
        shown_default="made once (development); none (production)",
        secret=True,
    )
    payload_keys: tuple[tuple[str, str], ...] = setting(
        "Web",
        "Encrypt the payloads and results of projects that are set so, each key with a name of your choice: "
        "`2026b:KEY,2026a:KEY`. The first encrypts, each of them decrypts; the name is stored with what it encrypted. "
        "The same on every web process and worker. In development one is made once and kept in the data directory.",
        parse.NAMED_KEYS,
        default=(),
        shown_default="made once (development); none (production)",
        secret=True,
    )
    target_credential_keys: tuple[str, ...] = setting(
        "Web",
        "For `manage.py move_project` alone: the QUEUEOPS_CREDENTIAL_KEYS of the installation that a project moves to.",
        parse.FERNET_KEYS,
        default=(),
        shown_default="none",
        secret=True,
    )
    allowed_hosts: tuple[str, ...] = setting(
        "Web",
        "Host names this installation answers to. Required in production; `*` is refused there.",
        parse.WORDS,
        default=("localhost", "127.0.0.1", "[::1]"),
    )
    csrf_trusted_origins: tuple[str, ...] = setting(
        "Web",
        "Origins, each with its scheme, whose forms are accepted: needed behind a proxy that ends TLS.",
        parse.ORIGINS,
        default=(),
    )
    tls: bool = setting(
        "Web",
        "Cookies only over HTTPS, plain HTTP redirected, HSTS. Must be on in production.",
        parse.BOOLEAN,
        default=False,
    )
    tls_proxy: bool = setting(
        "Web",
        "A proxy in front ends TLS, sets `X-Forwarded-Proto`, removing what clients sent, and adds the client's "
        "address to the end of `X-Forwarded-For`.",
        parse.BOOLEAN,
        default=False,
    )
    host: str = setting("Web", "Address the web process listens on.", parse.text(), default="127.0.0.1")
    port: int = setting("Web", "Port the web process listens on.", parse.PORT, default=8000)
    max_body_mb: int = setting(
        "Web",
        "Largest body of a batch submission, in MB; it is cut off before anything buffers it.",
        parse.integer(1, 10_000),
        default=200,
    )
    cell: str = setting(
        "Web",
        "What this installation is called where there are several, each with projects of its own: one to four small "
        "letters and digits. New API keys begin with `qo_<cell>_`, so that a proxy can tell where a request belongs.",
        parse.CELL,
        default="",
        shown_default="unset: new keys begin with `qo_`",
    )
    requests_per_minute: int = setting(
        "Web",
        "Requests that one API key may send to one web process in a minute, unless the key has a rate of its own; more "
        "are answered with 429.",
        parse.integer(1, 10_000_000),
        default=60_000,
    )
    user_requests_per_minute: int = setting(
        "Web",
        "The same for each end user who comes with a token, and for each address that reads without credentials.",
        parse.integer(1, 10_000_000),
        default=600,
    )
    cors_origins: tuple[str, ...] = setting(
        "Web",
        "Origins, each with its scheme, whose pages may call the API and open websockets from a browser, with a key or "
        "a token; cookies never count there.",
        parse.ORIGINS,
        default=(),
        shown_default="none",
    )
    metrics_token: str = setting(
        "Web",
        "Who reads `/metrics` must show it as `Authorization: Bearer`. Unset: only this machine may read them, and "
        "nobody through a proxy.",
        parse.text(at_least=16),
        default="",
        shown_default="unset: this machine only",
        secret=True,
    )
    log_format: str = setting(
        "Web",
        "`json`: an object a line, for log collectors; `text`: for people.",
        parse.one_of("json", "text"),
        default="",
        shown_default="`text` (development); `json` (production)",
    )
    log_level: str = setting(
        "Web",
        "Least level that is logged.",
        parse.one_of("DEBUG", "INFO", "WARNING", "ERROR"),
        default="INFO",
    )

    second_factor: str = setting(
        "Signing in",
        "`required`: everybody who is staff signs in with a second factor, and sets one up the next time. `optional`: "
        "only those who set one up.",
        parse.one_of("optional", "required"),
        default="optional",
    )
    lockout_failures: int = setting(
        "Signing in",
        "So many failures of one account from one address lock both together; as many wrong codes lock the account, "
        "as many wrong producer keys the address.",
        parse.integer(1, 1000),
        default=5,
    )
    lockout_account_failures: int = setting(
        "Signing in",
        "So many failures of one account from all addresses together lock the account.",
        parse.integer(1, 100_000),
        default=25,
    )
    lockout_minutes: int = setting(
        "Signing in",
        "For how long a failure counts, and how long a lock lasts.",
        parse.integer(1, 10_080),
        default=15,
    )
    session_idle_minutes: int = setting(
        "Signing in",
        "A session that was not used for so many minutes is over. A page that only listens does not use it.",
        parse.integer(5, 43_200),
        default=240,
    )
    session_hours: int = setting(
        "Signing in",
        "A session is over after so many hours, used or not.",
        parse.integer(1, 720),
        default=24,
    )

    password_sign_in: str = setting(
        "Signing in",
        "`superusers`: nobody else signs in to the admin with a password; for installations whose people come from a "
        "provider. `everybody`: whoever has one.",
        parse.one_of("everybody", "superusers"),
        default="everybody",
    )
    oidc_issuer: str = setting(
        "Single sign-on",
        "The OpenID Connect provider that vouches for staff, to the letter as its discovery document has it in "
        "`issuer`. Needs `queueops[oidc]`.",
        parse.ISSUER,
        default="",
        shown_default="unset: no single sign-on",
    )
    oidc_client_id: str = setting(
        "Single sign-on",
        "What the provider knows this installation by. Required with an issuer.",
        parse.text(),
        default="",
        shown_default="unset",
    )
    oidc_client_secret: str = setting(
        "Single sign-on",
        "What this installation proves that with; unset for a public client, which PKCE alone protects.",
        parse.text(),
        default="",
        shown_default="unset",
        secret=True,
    )
    oidc_name: str = setting(
        "Single sign-on",
        "What people call the provider: the button says “Sign in with …”.",
        parse.text(),
        default="single sign-on",
    )
    oidc_scopes: tuple[str, ...] = setting(
        "Single sign-on",
        "What is asked of the provider; `openid` must be among it.",
        parse.WORDS,
        default=("openid", "profile", "email"),
    )
    oidc_audiences: tuple[str, ...] = setting(
        "Single sign-on",
        "An ID token must be meant for one of these (`aud`).",
        parse.WORDS,
        default=(),
        shown_default="the client id",
    )
    oidc_group_claim: str = setting(
        "Single sign-on",
        "The claim that names somebody's groups: a list, or one text. Dots lead into objects: `realm_access.roles`.",
        parse.text(),
        default="groups",
    )
    oidc_roles: tuple[tuple[str, str], ...] = setting(
        "Single sign-on",
        "Which role each of the provider's groups gives, separated by semicolons. Who is in none of them is not let "
        "in. Required with an issuer.",
        parse.GROUP_ROLES,
        default=(),
        shown_default="unset",
    )
    oidc_link_by_email: bool = setting(
        "Single sign-on",
        "Who comes for the first time gets the account here that has the same e-mail address, if the provider says "
        "that it is verified; never a superuser's. Off: always an account of their own.",
        parse.BOOLEAN,
        default=False,
    )
    oidc_second_factor: tuple[str, ...] = setting(
        "Single sign-on",
        "Values of the claim `amr` that show that the provider has asked for a second factor, so that none is asked "
        "for here. `*`: it always does; `never`: it is always asked for here.",
        parse.WORDS,
        default=("mfa",),
    )

    database_url: str = setting(
        "Database",
        "PostgreSQL 15 or newer: `postgresql://user:password@host:5432/name`, or several hosts of which one is the "
        "primary: `…@h1:5432,h2:5432/name?target_session_attrs=read-write`. Unset: the embedded server.",
        parse.POSTGRES_URL,
        default="",
        variable="DATABASE_URL",
        shown_default="unset: embedded PostgreSQL 18",
        secret=True,
    )
    data_dir: Path = setting(
        "Database",
        "Where the embedded server keeps its cluster, and development its keys. As root choose no "
        "directory below a private home: the server runs as another user that must be able to reach it.",
        parse.PATH,
        default=Path(),
        shown_default="`.data` in the checkout; as root below a private directory `/var/lib/queueops/<id>`",
    )
    pool_size: int = setting(
        "Database",
        "Most connections of one web process; workers never pool.",
        parse.integer(1, 500),
        default=10,
    )
    replica_url: str = setting(
        "Database",
        "A streaming standby for the admin's lists, exports, charts and the depths of `/metrics`, written like "
        "DATABASE_URL; of several hosts `?target_session_attrs=standby` takes one that is no primary. "
        "[Reads off the primary](../how-to/production.md#reads-off-the-primary).",
        parse.POSTGRES_URL,
        default="",
        variable="DATABASE_REPLICA_URL",
        shown_default="unset: everything is read from the primary",
        secret=True,
    )
    replica_max_lag_seconds: float = setting(
        "Database",
        "A replica that lags more is not read, and for so long after writing a browser's pages come from the primary.",
        parse.number(0.1, 3600),
        default=10.0,
    )
    listen: bool = setting(
        "Database",
        "Wake up by LISTEN/NOTIFY and prepare hot statements. Turn it off behind PgBouncer in transaction mode, where "
        "nothing starts with it; polling is enough.",
        parse.BOOLEAN,
        default=True,
    )

    workers: int = setting(
        "Workers",
        "Worker processes of one `manage.py qcluster`; one more runs jobs that crashed twice, one at a time.",
        parse.integer(1, 256),
        default=2,
    )
    executor_slots: int = setting(
        "Workers", "Jobs that one worker process carries out at once.", parse.integer(1, 10_000), default=200
    )
    pool: str = setting(
        "Workers",
        "The pool whose jobs the clusters started here carry out, and no others; `--pool` names another. Not set: all "
        "jobs. A pool is added in the admin or with `manage.py set_pool`.",
        parse.text(),
        default="",
        shown_default="all jobs",
    )
    unserved_hours: float = setting(
        "Workers",
        "How long a job whose kind no worker knows, or whose payload none takes, waits before it is a dead letter.",
        parse.number(0.0001, 8760),
        default=24.0,
    )
    loop_budget_seconds: float = setting(
        "Workers",
        "How long a handler may keep a worker's other jobs from going on before it is named and runs alone.",
        parse.number(0.1, 30),
        default=2.0,
    )
    lease_seconds: float = setting(
        "Workers",
        "How long a worker owns a claimed job unless it renews; a lost worker's jobs come back after it.",
        parse.number(1, 3600),
        default=30.0,
    )
    renew_seconds: float = setting(
        "Workers",
        "How often a lease is renewed; less than half of the lease.",
        parse.number(0.1, 600),
        default=10.0,
    )
    sweep_seconds: float = setting(
        "Workers",
        "How often lapsed leases are looked for; no longer than the lease.",
        parse.number(0.1, 600),
        default=5.0,
    )
    poll_seconds: float = setting(
        "Workers",
        "How often a worker looks for work when nothing woke it; after five quiet seconds, each five seconds.",
        parse.number(0.01, 60),
        default=0.25,
    )
    drain_grace_seconds: float = setting(
        "Workers",
        "How long a stopping worker lets running jobs finish before it hands them back, and a stopping web process "
        "the requests under way.",
        parse.number(0, 3600),
        default=30.0,
    )

    outcome_log: Path | None = setting(
        "Workers",
        "A directory on the worker's own disk in which each worker process notes what it called and how it ended, "
        "for `manage.py reconcile` after a restore. Unset: nothing is noted.",
        parse.PATH,
        default=None,
        shown_default="unset",
    )
    outcome_log_mb: int = setting(
        "Workers",
        "So many MB of it are kept, beside the files being written; the oldest go.",
        parse.integer(1, 1_000_000),
        default=2000,
    )
    outcome_log_days: float = setting(
        "Workers",
        "So many days of it are kept: more than lie between two backups.",
        parse.number(0.01, 3650),
        default=7.0,
    )

    currency: str = setting(
        "Money",
        "What prices, spend and budgets are in. Amounts that are stored are not converted: set it once.",
        parse.CURRENCY,
        default="USD",
    )

    batch_window_seconds: float = setting(
        "Batch lane",
        "How long a batch of a provider is taken to last while fewer than ten of that service are known.",
        parse.number(1, 30 * 86_400),
        default=86_400.0,
    )
    batch_margin_seconds: float = setting(
        "Batch lane",
        "How long before its deadline a job that its batch has not done goes live.",
        parse.number(1, 7 * 86_400),
        default=1800.0,
    )
    batch_collect_seconds: float = setting(
        "Batch lane",
        "How long jobs wait for others to fill a batch of the provider.",
        parse.number(0.1, 86_400),
        default=60.0,
    )
    batch_poll_seconds: float = setting(
        "Batch lane",
        "The longest pause between two looks at a batch of a provider.",
        parse.number(0.1, 3600),
        default=60.0,
    )
    batch_call_seconds: float = setting(
        "Batch lane",
        "How long one call to a batch API may take, beside a second for each 200 kB that it sends; what a provider was "
        "asked to make and did not answer in time is looked for among its batches.",
        parse.number(1, 600),
        default=90.0,
    )
    batch_most_jobs: int = setting(
        "Batch lane",
        "Most jobs in one batch of a provider, where that allows no fewer.",
        parse.integer(1, 100_000),
        default=20_000,
    )

    max_job_mb: int = setting("Limits", "Largest payload of one job, in MB.", parse.integer(1, 64), default=2)
    max_batch_jobs: int = setting("Limits", "Most jobs in one batch.", parse.integer(1, 1_000_000), default=100_000)
    usage_max_age_days: int = setting(
        "Limits",
        "Reports of usage that happened longer ago are refused; longer than any client keeps them unsent.",
        parse.integer(1, 365),
        default=35,
    )
    rate_limit_rpm: int = setting(
        "Limits",
        "Requests a minute of a plain LLM service, for each project: the cap that `manage.py load_limits llm` stores.",
        parse.integer(1, 1_000_000_000),
        default=60,
        variable="RATE_LIMIT_RPM",
    )
    rate_limit_tpm: int = setting(
        "Limits",
        "Tokens a minute of a plain LLM service, for each project: the cap that `manage.py load_limits llm` stores.",
        parse.integer(1, 1_000_000_000_000),
        default=30_000,
        variable="RATE_LIMIT_TPM",
    )

    retention_days: int = setting(
        "Retention",
        "Finished jobs, with their dead letters once those are resolved and their webhooks' messages, are deleted "
        "after so many days, and so are days of the log and periods of budgets that are over. An open dead letter "
        "keeps its job and what the log had of it.",
        parse.integer(1, 3650),
        default=30,
    )
    batch_retention_days: int = setting(
        "Retention",
        "Batches are deleted so many days after they ended, when their jobs are gone.",
        parse.integer(1, 3650),
        default=90,
    )
    audit_retention_days: int = setting(
        "Retention",
        "The audit trail is kept for so many days, and until the month is over that they end in: old months are "
        "dropped whole. Nothing else can remove an entry.",
        parse.integer(31, 36_500),
        default=400,
    )
    audit_stream: str = setting(
        "Retention",
        "Where house-keeping sends every entry of the audit trail: `syslog+tls://host:6514`, `syslog+tcp://`, "
        "`syslog+udp://`, or `file:///path` on the worker's host.",
        parse.AUDIT_TARGET,
        default="",
        shown_default="unset: nowhere",
    )
    alert_retention_days: int = setting(
        "Retention",
        "Alerts are deleted after so many days, once they are resolved.",
        parse.integer(1, 3650),
        default=30,
    )
    operation_retention_days: int = setting(
        "Retention",
        "Bulk operations and house-keeping tasks that ended are deleted after so many days.",
        parse.integer(1, 3650),
        default=90,
    )
    answer_retention_days: int = setting(
        "Retention",
        "For so many days a request that is sent again with its `Idempotency-Key` gets its first answer.",
        parse.integer(1, 365),
        default=7,
    )
    usage_retention_days: int = setting(
        "Retention",
        "Usage, reservations and totals of allowances are deleted so many days after their month began.",
        parse.integer(100, 36_500),
        default=400,
    )

    spend_retention_days: int = setting(
        "Retention",
        "Calls and what they cost are kept for so many days.",
        parse.integer(32, 36_500),
        default=400,
    )

    archive_dir: str | None = setting(
        "Retention",
        "Where `manage.py archive` writes ended jobs, batches and days of the log: a directory, or "
        "`s3://bucket/prefix`, which needs `queueops[s3]`. Where it is set, or once that command has run, "
        "house-keeping deletes none of these: they go when they are archived.",
        parse.STORE,
        default=None,
        shown_default="unset: nothing is archived",
    )
    s3_endpoint: str = setting(
        "Retention",
        "The S3-compatible server that has the bucket. Credentials and region are read from `AWS_ACCESS_KEY_ID`, "
        "`AWS_SECRET_ACCESS_KEY` and `AWS_REGION`, or are those of the machine's role.",
        parse.ORIGIN,
        default="",
        shown_default="unset: Amazon's",
    )

    email_url: str = setting(
        "Alerts",
        "The mail server for alerts: `smtp://` plain, `smtp+tls://` with STARTTLS (587), `smtps://` TLS from the "
        "start (465). User and password percent-encoded. Unset: no alert is sent by e-mail.",
        parse.SMTP_URL,
        default="",
        shown_default="unset",
        secret=True,
    )
    email_from: str = setting(
        "Alerts",
        "From whom alerts come.",
        parse.text(at_least=3),
        default="queueops@localhost",
    )
    public_url: str = setting(
        "Alerts",
        "Where people reach this installation; alerts link there. Unset: they carry no link.",
        parse.ORIGIN,
        default="",
        shown_default="unset",
    )
    pagerduty_url: str = setting(
        "Alerts",
        "Where PagerDuty takes events; in its EU region `https://events.eu.pagerduty.com/v2/enqueue`.",
        parse.text(at_least=8),
        default="https://events.pagerduty.com/v2/enqueue",
    )
    alert_dead_letters: int = setting(
        "Alerts",
        "So many new dead letters within 15 minutes are an alert, besides the first of each cause.",
        parse.integer(1, 100_000),
        default=20,
    )
    alert_open_dead_letters: int = setting(
        "Alerts",
        "So many open dead letters are an alert.",
        parse.integer(1, 100_000),
        default=1000,
    )
    alert_oldest_ready_minutes: float = setting(
        "Alerts",
        "A job that nothing holds back and that still waits after so many minutes is an alert.",
        parse.number(0.1, 100_000),
        default=30.0,
    )
    alert_running_minutes: float = setting(
        "Alerts",
        "A job that has been running for so many minutes is an alert; more than any handler of yours takes.",
        parse.number(0.01, 100_000),
        default=60.0,
    )
    alert_paused_minutes: float = setting(
        "Alerts",
        "A pause that jobs have waited under for so many minutes is an alert.",
        parse.number(0.1, 100_000),
        default=60.0,
    )
    alert_transaction_minutes: float = setting(
        "Alerts",
        "A transaction that stays open in the database for so many minutes is an alert.",
        parse.number(0.1, 100_000),
        default=30.0,
    )

    extra_apps: tuple[str, ...] = setting(
        "Handlers",
        "Django apps of your own whose `handlers` module declares handlers; each must be importable.",
        parse.WORDS,
        default=(),
    )
    tasks_project: str = setting(
        "Handlers",
        "Project whose jobs the functions decorated with django.tasks' `@task` become.",
        parse.text(),
        default="tasks",
    )

    sandbox_port: int = setting("Development", "Port of the local sandbox provider.", parse.PORT, default=8001)
    allow_loopback_targets: bool = setting(
        "Development",
        "Handlers may call 127.0.0.1, for the sandbox. Refused in production.",
        parse.BOOLEAN,
        default=False,
    )

    @property
    def shown_log_format(self) -> str:
        return self.log_format or ("text" if self.debug else "json")

    @property
    def max_payload_bytes(self) -> int:
        return self.max_job_mb * MEGABYTE

    @property
    def max_job_bytes(self) -> int:
        """Of one job as it is sent: the payload and what surrounds it."""
        return self.max_payload_bytes + ENVELOPE_BYTES


def declared_settings() -> dict[str, tuple[Setting, Any]]:
    """Return field name -> (declaration with its variable filled in, default), in order of declaration."""
    return {item.name: (_declaration(item), item.default) for item in fields(Environment)}


def _declaration(item: "Field[Any]") -> Setting:
    declared: Setting = item.metadata["setting"]
    if declared.variable:
        return declared
    return Setting(
        variable=f"QUEUEOPS_{item.name.upper()}",
        section=declared.section,
        text=declared.text,
        parse=declared.parse,
        rule=declared.rule,
        shown_default=declared.shown_default,
        secret=declared.secret,
    )


# Of the command `queueops`, which may be set in the same shell.
OF_THE_CLIENT = frozenset({"QUEUEOPS_URL", "QUEUEOPS_KEY", "QUEUEOPS_KEY_FILE"})


def read(environ: Mapping[str, str], *, default_data_dir: Path) -> Environment:
    """
    Read every setting once.

    A variable that is set but empty counts as unset, as compose files write it.

    Raises:
        BadConfiguration: Names every bad key with its rule and value, not only the first.
    """
    values: dict[str, Any] = {"data_dir": default_data_dir}
    problems: list[str] = []
    variables = set()
    for name, (declared, _) in declared_settings().items():
        variables.add(declared.variable)
        given = environ.get(declared.variable, "").strip()
        if not given:
            continue
        try:
            values[name] = declared.parse(given)
        except ValueError:
            problems.append(_problem(declared, given))
    problems += [
        f"{key} is not a setting (docs/reference/settings.md lists them)"
        for key in sorted(environ)
        if key.startswith("QUEUEOPS_") and key not in variables | OF_THE_CLIENT
    ]
    # Rules between settings are checked on what could be read, so that all problems show at once.
    found = Environment(**values)
    problems += _broken_rules(found, given=frozenset(values))
    if problems:
        raise BadConfiguration(problems)
    return found


def _problem(declared: Setting, given: str) -> str:
    shown = "(not shown)" if declared.secret else repr(given)
    return f"{declared.variable} must be {declared.rule}; it is {shown}"


def _broken_rules(found: Environment, *, given: frozenset[str]) -> list[str]:
    broken = []
    if found.renew_seconds * 2 >= found.lease_seconds:
        broken.append(
            "QUEUEOPS_RENEW_SECONDS must be less than half of QUEUEOPS_LEASE_SECONDS, so that one missed "
            f"renewal loses nothing; they are {found.renew_seconds:g} and {found.lease_seconds:g}"
        )
    if found.sweep_seconds > found.lease_seconds:
        broken.append(
            "QUEUEOPS_SWEEP_SECONDS must not exceed QUEUEOPS_LEASE_SECONDS; "
            f"they are {found.sweep_seconds:g} and {found.lease_seconds:g}"
        )
    if found.replica_url and found.replica_max_lag_seconds + found.renew_seconds >= found.lease_seconds:
        broken.append(
            "QUEUEOPS_REPLICA_MAX_LAG_SECONDS and QUEUEOPS_RENEW_SECONDS together must be less than "
            "QUEUEOPS_LEASE_SECONDS, or a list that lags shows live workers as silent; they are "
            f"{found.replica_max_lag_seconds:g}, {found.renew_seconds:g} and {found.lease_seconds:g}"
        )
    if found.port == found.sandbox_port:
        broken.append(f"QUEUEOPS_PORT and QUEUEOPS_SANDBOX_PORT must differ; both are {found.port}")
    if found.max_job_mb > found.max_body_mb:
        broken.append(
            "QUEUEOPS_MAX_JOB_MB must not exceed QUEUEOPS_MAX_BODY_MB; "
            f"they are {found.max_job_mb} and {found.max_body_mb}"
        )
    if found.usage_retention_days < found.usage_max_age_days + 2 * 31:
        broken.append(
            "QUEUEOPS_USAGE_RETENTION_DAYS must be two months longer than QUEUEOPS_USAGE_MAX_AGE_DAYS, so that an "
            "event that is sent again is known; "
            f"they are {found.usage_retention_days} and {found.usage_max_age_days}"
        )
    if found.lockout_account_failures < found.lockout_failures:
        broken.append(
            "QUEUEOPS_LOCKOUT_ACCOUNT_FAILURES must not be below QUEUEOPS_LOCKOUT_FAILURES; "
            f"they are {found.lockout_account_failures} and {found.lockout_failures}"
        )
    broken += _broken_sign_on_rules(found)
    broken += [
        f"QUEUEOPS_EXTRA_APPS names {name!r}, which cannot be found: install it, or set PYTHONPATH to where it is"
        for name in found.extra_apps
        if not _is_found(name)
    ]
    if not found.debug:
        broken += _broken_production_rules(found, given=given)
    return broken


def _broken_sign_on_rules(found: Environment) -> list[str]:
    if not found.oidc_issuer:
        return []
    needed = {"QUEUEOPS_OIDC_CLIENT_ID": found.oidc_client_id, "QUEUEOPS_OIDC_ROLES": found.oidc_roles}
    broken = [f"{name} must be set with QUEUEOPS_OIDC_ISSUER; it is not" for name, value in needed.items() if not value]
    if "openid" not in found.oidc_scopes:
        broken.append("QUEUEOPS_OIDC_SCOPES must hold openid, or the provider sends no ID token")
    if not _is_found("authlib"):
        broken.append("QUEUEOPS_OIDC_ISSUER needs the extra queueops[oidc]; see docs/how-to/single-sign-on.md")
    return broken


def _is_found(app: str) -> bool:
    """Whether there is such a module, or one that may hold such a configuration; no package on the way is run."""
    module, _, last = app.rpartition(".")
    package, *inner = (module if last[:1].isupper() else app).split(".")
    try:
        found = importlib.util.find_spec(package)
    except ValueError:
        return False
    for name in inner:
        found = found and importlib.machinery.PathFinder.find_spec(name, found.submodule_search_locations or [])
    return found is not None


def _broken_production_rules(found: Environment, *, given: frozenset[str]) -> list[str]:
    because = "when QUEUEOPS_DEBUG is off"
    broken = []
    if "secret_key" not in given:
        broken.append(f"QUEUEOPS_SECRET_KEY must be set {because}; it is not")
    if "allowed_hosts" not in given or "*" in found.allowed_hosts:
        broken.append(f"QUEUEOPS_ALLOWED_HOSTS must name the hosts {because}; it is not set or holds *")
    if not found.tls:
        broken.append(f"QUEUEOPS_TLS must be on {because}; it is off")
    if found.second_factor == "required" and not found.credential_keys:
        broken.append(f"QUEUEOPS_CREDENTIAL_KEYS must be set {because} and QUEUEOPS_SECOND_FACTOR is required")
    if found.oidc_issuer.startswith("http://"):
        broken.append(f"QUEUEOPS_OIDC_ISSUER must begin with https:// {because}; it is {found.oidc_issuer!r}")
    if found.allow_loopback_targets:
        broken.append(f"QUEUEOPS_ALLOW_LOOPBACK_TARGETS must be off {because}; it is on")
    return broken
