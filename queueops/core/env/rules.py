"""Rules between settings."""

import importlib.machinery
import importlib.util

from .environment import Environment


def broken_rules(found: Environment, *, given: frozenset[str]) -> list[str]:
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
    """Whether the app's module, or the module of its configuration class, exists; looking imports no package."""
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
