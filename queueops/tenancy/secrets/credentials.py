"""
Secrets that handlers show to providers: encrypted at rest, opened only where a call is made.

A stored secret is a Fernet token of a JSON object. QUEUEOPS_CREDENTIAL_KEYS holds the keys: the first
encrypts, each of them decrypts, so that a key can be replaced while everything runs.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from django.conf import settings
from django.db.models import Value

from queueops.core.clock import Now
from queueops.core.errors import QueueOpsError
from queueops.core.secret_key import development_credential_key
from queueops.tenancy.credential_pools import pools
from queueops.tenancy.credential_pools.server_settings import SettingPlace, noted_here
from queueops.tenancy.models import Credential, CredentialPool, CredentialSetting, Issuer, Placement

MAX_SECRET_CHARACTERS = 100_000
# Models and their columns that hold Fernet tokens, or NULL.
SEALED: list[tuple[Any, str]] = [(Credential, "secret"), (Issuer, "secret")]
CHECKS: list[Callable[[Credential], str | None]] = []

logger = logging.getLogger(__name__)


class CredentialKeysMissing(QueueOpsError):
    """QUEUEOPS_CREDENTIAL_KEYS must be set: without it no credential can be stored or opened."""

    code = "credential_keys_missing"
    status = 500


class CredentialUnreadable(QueueOpsError):
    """None of the keys in QUEUEOPS_CREDENTIAL_KEYS opens the credential."""

    code = "credential_unreadable"
    status = 500
    detail_fields = ("credential",)


class UnknownCredential(QueueOpsError):
    """There is no such credential."""

    code = "unknown_credential"
    status = 422
    detail_fields = ("credential",)


class CredentialNotAllowed(QueueOpsError):
    """The project may not use this credential."""

    code = "credential_not_allowed"
    status = 422
    detail_fields = ("credential", "project")


class BadSecret(QueueOpsError):
    """The secret must be a JSON object."""

    code = "bad_secret"
    status = 422


@dataclass(frozen=True, slots=True)
class OpenCredential:
    """
    A credential as a handler gets it.

    Attributes:
        secret: The JSON object; not part of the repr, so that no log line or traceback shows it.
        quota_project, quota_user: Whom the provider counts the calls for; empty: the job's own.
        settings: The `CredentialSetting.Takes` of its server by model; the key "" holds for every model.
        hosts, placement, placement_name, oauth_scopes: For `http.request`: see credential_pools/http_use.py.
    """

    name: str
    service: str
    secret: dict[str, Any] = field(repr=False)
    base_url: str = ""
    quota_project: str = ""
    quota_user: str = ""
    settings: Mapping[str, frozenset[str]] = field(default_factory=dict)
    hosts: tuple[str, ...] = ()
    placement: str = Placement.BEARER
    placement_name: str = ""
    oauth_scopes: str = ""

    def takes(self, model: str) -> frozenset[str]:
        """Return the settings of its server for a model: those stored, and those that this process has just learned."""
        learned = noted_here(SettingPlace(self.name, self.base_url, model))
        return learned.union(self.settings.get("", ()), self.settings.get(model, ()))


@dataclass(frozen=True, slots=True)
class Rotation:
    """
    The outcome of `rotate`.

    Attributes:
        current: How many secrets were encrypted with the newest key already.
        unreadable: Names of the credentials that no key opens; they are unchanged.
    """

    rotated: int
    current: int
    unreadable: tuple[str, ...]


def parse_secret(text: str) -> dict[str, Any]:
    """
    Read a secret that a person has typed in.

    Raises:
        BadSecret: The text is no JSON object with at least one entry. The message does not quote the text.
    """
    if len(text) > MAX_SECRET_CHARACTERS:
        raise BadSecret(f"The secret is longer than {MAX_SECRET_CHARACTERS:,} characters.")
    secret, fault = None, ""
    try:
        secret = json.loads(text, parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        fault = f"The secret must be a JSON object. Line {error.lineno}, column {error.colno}: {error.msg}."
    except (RecursionError, ValueError):
        fault = BadSecret.default_message()
    if fault:
        raise BadSecret(fault)  # after the except block: the decoder's error would bring the whole text along
    if not isinstance(secret, dict) or not secret:
        raise BadSecret('The secret must be a JSON object with at least one entry, such as {"api_key": "…"}.')
    return secret


def seal(secret: dict[str, Any]) -> bytes:
    """
    Encrypt a secret with the newest key; each call gives another token.

    Raises:
        CredentialKeysMissing
    """
    return _cipher(_keys()).encrypt(json.dumps(secret).encode())


def unseal(token: bytes) -> dict[str, Any]:
    """
    Raises:
        CredentialKeysMissing
        InvalidToken: No key opens the token.
    """
    opened: dict[str, Any] = json.loads(_cipher(_keys()).decrypt(token))
    return opened


def also_rotate(model: Any, column: str = "secret") -> None:
    """Have `rotate` and `unreadable_credentials` cover a column of another model, which has `rotated_at`."""
    if (model, column) not in SEALED:
        SEALED.append((model, column))


def also_warn(check: Callable[[Credential], str | None]) -> None:
    """Have the credentials' form show a check's warning about a saved credential; None: no warning."""
    if check not in CHECKS:
        CHECKS.append(check)


def open_credential(row: Credential) -> OpenCredential:
    """
    Raises:
        CredentialKeysMissing, CredentialUnreadable
    """
    try:
        secret = unseal(bytes(row.secret))
    except InvalidToken:
        raise _unreadable(row.name) from None
    return OpenCredential(
        name=row.name,
        service=row.service,
        secret=secret,
        base_url=row.base_url,
        quota_project=row.quota_project,
        quota_user=row.quota_user,
        settings=_settings_of(row),
        hosts=tuple(row.hosts),
        placement=row.placement,
        placement_name=row.placement_name,
        oauth_scopes=row.oauth_scopes,
    )


def _settings_of(row: Credential) -> dict[str, frozenset[str]]:
    found: dict[str, frozenset[str]] = {}
    for one in row.settings.all() if row.pk else ():
        if one.base_url in ("", row.base_url):
            found[one.model] = found.get(one.model, frozenset()) | {one.takes}
    return found


def open_named(name: str) -> OpenCredential:
    """
    Raises:
        UnknownCredential, CredentialKeysMissing, CredentialUnreadable
    """
    row = Credential.objects.filter(name=name).first()
    if row is None:
        raise UnknownCredential(f"There is no credential {name!r}.", credential=name)
    return open_credential(row)


def open_for(names: Collection[str]) -> dict[str, OpenCredential]:
    """
    Open several credentials at once.

    A credential that is missing or cannot be opened is left out, so that the others can be used; `open_named` says why.
    """
    opened = {}
    for row in Credential.objects.filter(name__in=set(names)).prefetch_related("settings") if names else ():
        try:
            opened[row.name] = open_credential(row)
        except QueueOpsError as error:
            logger.error("Credential %s stays closed: %s", row.name, error.message)  # noqa: TRY400 - no traceback
    return opened


class Account(NamedTuple):
    """
    The account behind a credential, without its secret.

    Attributes:
        principals: Project and user that the provider counts the calls for; empty: the job's own.
        base_url: Its own address; empty: the service's public one.
        is_pool: It is a pool: each of its members has an account of its own.
    """

    principals: tuple[str, str] = ("", "")
    base_url: str = ""
    is_pool: bool = False


def find_accounts(names: Collection[str]) -> dict[str, Account]:
    """Return by name the accounts behind these credentials and pools, as far as they exist."""
    if not names:
        return {}
    rows = Credential.objects.filter(name__in=set(names))
    found = {
        name: Account((project, user), base_url)
        for name, project, user, base_url in rows.values_list("name", "quota_project", "quota_user", "base_url")
    }
    if others := set(names) - found.keys():
        found |= {name: Account(pools.principals_of(name), is_pool=True) for name in pools.pools_among(others)}
    return found


def base_url_of(name: str | None) -> str:
    """Return a credential's own address; empty: it has none, or there is no such credential."""
    return find_accounts({name}).get(name, Account()).base_url if name else ""


def find_principals(names: Collection[str]) -> dict[str, tuple[str, str]]:
    """Return by name the quota project and user of the credentials and pools that exist."""
    return {name: account.principals for name, account in find_accounts(names).items()}


class UsableCredential(NamedTuple):
    """
    A credential or a pool of credentials that a project may name.

    Attributes:
        hosts, placement, placement_name: For `http.request`; a pool has no placement of its own.
    """

    service: str
    is_pool: bool
    base_url: str = ""
    hosts: Sequence[str] = ()
    placement: str = ""
    placement_name: str = ""


def usable_by(project_id: str | None) -> dict[str, UsableCredential]:
    """Return by name the credentials, and pools of them, that a project may use. One query."""
    single = Credential.objects.filter(projects=project_id).values_list(
        "name", "service", Value(value=False), "base_url", "hosts", "placement", "placement_name"
    )
    pooled = CredentialPool.objects.filter(projects=project_id).values_list(
        "name", "service", Value(value=True), Value(""), "hosts", Value(""), Value("")
    )
    rows = single.order_by().union(pooled.order_by(), all=True)
    return {name: UsableCredential(*usable) for name, *usable in rows}


def without_batches(project_id: str | None) -> frozenset[tuple[str, str]]:
    """Return the credentials and models of a project whose server takes no batches; the model "": every model."""
    rows = CredentialSetting.objects.filter(takes=CredentialSetting.Takes.NO_BATCHES, credential__projects=project_id)
    return frozenset(rows.order_by().values_list("credential__name", "model"))


def rotate() -> Rotation:
    """
    Encrypt every secret with the newest key.

    Each row is updated by a statement of its own: an interrupted run loses nothing, and the next run does the rest.

    Raises:
        CredentialKeysMissing
    """
    keys = _keys()
    rotated = current = 0
    unreadable = []
    for row, column in _sealed_rows():
        try:
            if _rotate_one(row, column, keys):
                rotated += 1
            else:
                current += 1
        except InvalidToken:
            unreadable.append(str(row))
    return Rotation(rotated, current, tuple(dict.fromkeys(unreadable)))


def unreadable_credentials() -> tuple[str, ...]:
    """
    Return the names of the rows of SEALED, credentials among them, whose secret no key opens.

    Raises:
        CredentialKeysMissing: Secrets are stored, but no key is set.
    """
    names = []
    for row, column in _sealed_rows():
        try:
            unseal(bytes(getattr(row, column)))
        except InvalidToken:
            names.append(str(row))
    return tuple(dict.fromkeys(names))  # a row may have several secrets


def _sealed_rows() -> Iterator[tuple[Any, str]]:
    for model, column in SEALED:
        for row in model.objects.exclude(**{column: None}).order_by("pk"):
            yield row, column


def _rotate_one(row: Any, column: str, keys: tuple[str, ...]) -> bool:
    """Return whether the secret was encrypted anew; False: it was current, or its row was deleted."""
    cipher, newest = _cipher(keys), Fernet(keys[0])
    while True:
        rows = type(row).objects.filter(pk=row.pk)
        stored = rows.values_list(column, flat=True).first()
        if stored is None or _opens(newest, bytes(stored)):
            return False
        # Filtered by the secret that was read: otherwise this could overwrite a secret that was replaced meanwhile.
        unchanged = rows.filter(**{column: bytes(stored)})
        if unchanged.update(**{column: cipher.rotate(bytes(stored)), "rotated_at": Now()}):
            return True


def _opens(key: Fernet, token: bytes) -> bool:
    try:
        key.decrypt(token)
    except InvalidToken:
        return False
    return True


def _keys() -> tuple[str, ...]:
    config = settings.QUEUEOPS
    if config.credential_keys:
        return tuple(config.credential_keys)
    if config.debug:
        return (development_credential_key(config.data_dir),)
    raise CredentialKeysMissing


@lru_cache(maxsize=4)
def _cipher(keys: tuple[str, ...]) -> MultiFernet:
    return MultiFernet([Fernet(key) for key in keys])


def _refuse_constant(name: str) -> Any:
    raise ValueError(name)


def _unreadable(name: str) -> CredentialUnreadable:
    return CredentialUnreadable(
        f"No key in QUEUEOPS_CREDENTIAL_KEYS opens the credential {name!r}. "
        "Put back the key it was encrypted with, or enter its secret again.",
        credential=name,
    )
