"""What production starts with, refuses and warns of."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest
from cryptography.fernet import Fernet
from django.db.models.functions import Now

from queueops.access.models import SignInCount
from queueops.core.env.reading import BadConfiguration, read
from queueops.site.diagnosis.access import examine_sign_in
from queueops.site.diagnosis.finding import DoctorVerdict
from tests.security.people import person, with_second_factor
from tests.support.processes import ROOT

PRODUCTION = {
    "QUEUEOPS_DEBUG": "off",
    "QUEUEOPS_SECRET_KEY": "k" * 50,
    "QUEUEOPS_ALLOWED_HOSTS": "queue.example.org",
    "QUEUEOPS_TLS": "on",
    "DATABASE_URL": "postgresql://nobody@127.0.0.1:9/none",
}
ASKED = """
import json
from django.conf import settings
names = (
    "SESSION_COOKIE_SECURE", "SESSION_COOKIE_HTTPONLY", "SESSION_COOKIE_SAMESITE", "SESSION_COOKIE_NAME",
    "SESSION_COOKIE_AGE", "CSRF_COOKIE_SECURE", "CSRF_COOKIE_SAMESITE", "SECURE_SSL_REDIRECT", "SECURE_HSTS_SECONDS",
)
print(json.dumps({name: getattr(settings, name) for name in names}))
"""


def test_cookies_in_production_travel_over_tls_only_and_are_bound_to_the_host():
    answer = subprocess.run(
        [sys.executable, "-c", ASKED],
        cwd=ROOT,
        env={**PRODUCTION, "DJANGO_SETTINGS_MODULE": "queueops.settings", "QUEUEOPS_SESSION_HOURS": "12"},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert json.loads(answer.stdout) == {
        "SESSION_COOKIE_SECURE": True,
        "SESSION_COOKIE_HTTPONLY": True,
        "SESSION_COOKIE_SAMESITE": "Lax",
        "SESSION_COOKIE_NAME": "__Host-sessionid",
        "SESSION_COOKIE_AGE": 12 * 3600,
        "CSRF_COOKIE_SECURE": True,
        "CSRF_COOKIE_SAMESITE": "Lax",
        "SECURE_SSL_REDIRECT": True,
        "SECURE_HSTS_SECONDS": 31_536_000,
    }


def test_a_required_second_factor_needs_keys_to_encrypt_it_with():
    required = {**PRODUCTION, "QUEUEOPS_SECOND_FACTOR": "required"}
    with pytest.raises(BadConfiguration, match="QUEUEOPS_CREDENTIAL_KEYS must be set"):
        read(required, default_data_dir=Path("/nowhere"))
    keys = {"QUEUEOPS_CREDENTIAL_KEYS": Fernet.generate_key().decode()}
    assert read({**required, **keys}, default_data_dir=Path("/nowhere")).second_factor == "required"


def test_an_account_cannot_lock_sooner_than_an_address_of_it():
    wrong = {"QUEUEOPS_LOCKOUT_FAILURES": "9", "QUEUEOPS_LOCKOUT_ACCOUNT_FAILURES": "8"}
    with pytest.raises(BadConfiguration, match="QUEUEOPS_LOCKOUT_ACCOUNT_FAILURES must not be below"):
        read(wrong, default_data_dir=Path("/nowhere"))


@pytest.mark.django_db
def test_the_doctor_tells_of_superusers_without_a_second_factor_and_of_who_is_locked(settings):
    boss = person("boss", is_superuser=True)
    settings.DEBUG = True
    assert examine_sign_in().verdict is DoctorVerdict.OK
    settings.DEBUG = False
    found = examine_sign_in()
    assert (found.verdict, found.observation) == (DoctorVerdict.WARN, "superusers without a second factor: boss")
    with_second_factor(boss)
    assert examine_sign_in().verdict is DoctorVerdict.OK
    SignInCount.objects.create(
        purpose="password", account="ann", address="10.0.0.1", failures=99, forget_at=Now() + timedelta(hours=1)
    )
    found = examine_sign_in()
    assert (found.verdict, found.observation) == (DoctorVerdict.WARN, "locked: ann")
