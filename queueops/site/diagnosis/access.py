"""The doctor's questions about signing in, and about the keys of secrets."""

from django.conf import settings
from django.contrib.auth.models import User

from jobs.features.encryption.encrypt_payloads import keys_needed, still_plain
from jobs.models import PauseSwitch
from queueops.access.services import guard
from queueops.core.database import UnsuitableDatabase
from queueops.core.errors import QueueOpsError
from queueops.core.sealing import payload_keys
from queueops.tenancy.callers.issuer_keys import fetch_keys
from queueops.tenancy.models import Issuer, Project
from queueops.tenancy.secrets.credentials import CredentialKeysMissing, unreadable_credentials
from queueops.tenancy.secrets.secret_key import ensure_own_secret_key

from .finding import DoctorFinding, fail, ok, scalar, warn

SET_PAYLOAD_KEYS = "Set QUEUEOPS_PAYLOAD_KEYS on every host, or set the projects not to be encrypted."


def examine_credentials() -> DoctorFinding:
    if scalar("SELECT to_regclass('tenancy_credential')") is None:
        return warn("credentials", "no table yet", "Run manage.py migrate.")
    try:
        unreadable = unreadable_credentials()
    except CredentialKeysMissing as error:
        return fail("credentials", "stored, but there is no key", error.message)
    if unreadable:
        return fail(
            "credentials",
            f"no key opens {', '.join(unreadable)}",
            "Put back the key in QUEUEOPS_CREDENTIAL_KEYS they were encrypted with, or enter their secrets again."
            " Switch off webhooks and alert routes, and add others.",
        )
    return ok("credentials", "every one can be opened")


def examine_payload_keys() -> DoctorFinding:
    """Look for rows of encrypted projects whose key is missing, and for rows that are not encrypted."""
    name = "payload keys"
    if scalar("SELECT to_regclass('jobs_pauseswitch')") is None:
        return warn(name, "no table yet", "Run manage.py migrate.")
    projects = list(Project.objects.filter(encrypted=True).values_list("pk", flat=True))
    keys = list(payload_keys())
    waits = PauseSwitch.objects.filter(scope=PauseSwitch.Scope.SEALED).values_list("key", flat=True)
    needed = dict.fromkeys((key for key in waits if key not in keys), "jobs that wait for it")
    needed |= keys_needed(projects, keys)
    if needed:
        told = ", ".join(f"{key} ({where})" for key, where in sorted(needed.items()))
        return fail(
            name,
            f"rows need keys that are not set here: {told}",
            "Put them back into QUEUEOPS_PAYLOAD_KEYS, after the newest, on every host. Jobs that need them wait.",
        )
    if projects and not keys:
        return fail(name, "projects are encrypted, but there is no key", SET_PAYLOAD_KEYS)
    if behind := still_plain(projects):
        return warn(
            name, f"not all that is stored is encrypted: {', '.join(behind)}", "Run manage.py encrypt_payloads."
        )
    return ok(name, f"all there for {len(projects)} encrypted projects")


def examine_secret_key() -> DoctorFinding:
    try:
        ensure_own_secret_key()
    except UnsuitableDatabase as error:
        return fail("secret key", "another than the database's", error.message)
    return ok("secret key", "the database's")


def examine_issuers() -> DoctorFinding:
    """Fetch the keys of each issuer now, as the next token with a new key would."""
    if scalar("SELECT to_regclass('tenancy_issuer')") is None:
        return warn("issuers", "no table yet", "Run manage.py migrate.")
    issuers = list(Issuer.objects.filter(enabled=True).order_by("pk"))
    failed = []
    for issuer in issuers:
        if issuer.jwks_url:
            try:
                fetch_keys(issuer.pk, issuer.jwks_url)
            except QueueOpsError as error:
                failed.append(f"{issuer}: {error.message}")
    if failed:
        advice = "Its users are refused once the keys in use are a day old, at once if there are none. Check jwks_url."
        return warn("issuers", "; ".join(failed), advice)
    if not issuers:
        return ok("issuers", "none; no end user can come with a token")
    return ok("issuers", f"{len(issuers)}; every key server answers")


def examine_sign_in() -> DoctorFinding:
    if scalar("SELECT to_regclass('access_authenticator')") is None:
        return warn("sign-in", "no tables yet", "Run manage.py migrate.")
    locked = guard.locked_names()
    bare = list(
        User.objects.filter(is_superuser=True, is_active=True, authenticator=None, passkeys=None).values_list(
            "username", flat=True
        )
    )
    required = settings.QUEUEOPS.second_factor == "required"
    if not settings.DEBUG and bare and not required:
        return warn(
            "sign-in",
            f"superusers without a second factor: {', '.join(sorted(bare))}",
            "Set QUEUEOPS_SECOND_FACTOR=required, or have them set one up: docs/how-to/secure-the-admin.md.",
        )
    if locked:
        advice = "manage.py unlock_sign_in opens it, if it is not somebody who guesses."
        return warn("sign-in", f"locked: {', '.join(locked)}", advice)
    return ok("sign-in", f"nobody is locked; second factor {settings.QUEUEOPS.second_factor}")


def examine_single_sign_on() -> DoctorFinding:
    """Ask the provider now, as the next person who signs in would."""
    if not settings.QUEUEOPS.oidc_issuer:
        return ok("single sign-on", "none is set; people sign in with passwords")
    from queueops.access.services import provided, provider

    try:
        document = provider.discovered()
    except QueueOpsError as error:
        advice = f"Compare QUEUEOPS_OIDC_ISSUER with {settings.QUEUEOPS.oidc_issuer.rstrip('/')}{provider.DISCOVERY}"
        return fail("single sign-on", error.message, advice)
    if "S256" not in document.get("code_challenge_methods_supported", ["S256"]):
        return fail("single sign-on", "the provider knows no PKCE with S256", "Ask whoever runs it.")
    if unknown := provided.unknown_roles():
        advice = "Correct it, or make that group in the admin: who has only that role is not let in."
        observed = f"QUEUEOPS_OIDC_ROLES names {', '.join(unknown)}"
        return warn("single sign-on", observed, advice)
    return ok("single sign-on", f"{settings.QUEUEOPS.oidc_issuer} answers")
