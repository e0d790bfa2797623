import re
import subprocess
import sys
from pathlib import Path

import pytest

import queueops_client
from queueops.core.env.environment import declared_settings
from queueops.core.env.reading import OF_THE_CLIENT, BadConfiguration, read
from queueops.site.checks import unknown_settings_check
from tests.support.processes import ROOT

PRODUCTION = {
    "QUEUEOPS_DEBUG": "off",
    "QUEUEOPS_SECRET_KEY": "k" * 50,
    "QUEUEOPS_ALLOWED_HOSTS": "queue.example.org",
    "QUEUEOPS_TLS": "on",
}


def read_from(**environ: str):
    return read(environ, default_data_dir=Path("/nowhere"))


def problems_of(**environ: str) -> list[str]:
    with pytest.raises(BadConfiguration) as caught:
        read_from(**environ)
    return caught.value.problems


def test_an_empty_environment_gives_the_defaults():
    found = read_from()
    assert (found.lease_seconds, found.renew_seconds, found.sweep_seconds) == (30.0, 10.0, 5.0)
    assert (found.workers, found.executor_slots, found.poll_seconds) == (2, 200, 0.25)
    assert found.data_dir == Path("/nowhere")


def test_a_variable_that_is_set_but_empty_counts_as_unset():
    assert read_from(QUEUEOPS_WORKERS="").workers == 2


def test_a_bad_value_is_named_with_its_key_and_its_rule():
    for variable, value, rule in (
        ("QUEUEOPS_PORT", "99999", "a whole number from 1 to 65,535"),
        ("QUEUEOPS_WORKERS", "two", "a whole number from 1 to 256"),
        ("QUEUEOPS_POLL_SECONDS", "nan", "a number from 0.01 to 60"),
        ("QUEUEOPS_DEBUG", "perhaps", "on or off"),
        ("QUEUEOPS_LOG_FORMAT", "xml", "one of json, text"),
        ("QUEUEOPS_CSRF_TRUSTED_ORIGINS", "queue.example.org", "origins such as"),
    ):
        (problem,) = problems_of(**{variable: value})
        assert problem.startswith(f"{variable} must be {rule}")
        assert repr(value) in problem


def test_all_bad_values_are_named_at_once():
    assert len(problems_of(QUEUEOPS_PORT="0", QUEUEOPS_WORKERS="-1", QUEUEOPS_RENEW_SECONDS="20")) == 3


def test_a_secret_that_breaks_its_rule_is_not_shown():
    (problem,) = problems_of(DATABASE_URL="mysql://root:hunter2@db/x")
    assert "hunter2" not in problem


def test_a_misspelt_setting_is_refused_and_a_later_versions_is_named_and_no_reason_not_to_start(
    monkeypatch: pytest.MonkeyPatch,
):
    assert problems_of(QUEUEOPS_WORKER="4", QUEUEOPS_SWEEP_SECOND="1") == [
        "QUEUEOPS_SWEEP_SECOND is not a setting; QUEUEOPS_SWEEP_SECONDS is (docs/reference/settings.md lists them)",
        "QUEUEOPS_WORKER is not a setting; QUEUEOPS_WORKERS is (docs/reference/settings.md lists them)",
    ]
    assert read_from(QUEUEOPS_ALERT_OF_A_LATER_VERSION="4") == read_from()
    monkeypatch.setenv("QUEUEOPS_ALERT_OF_A_LATER_VERSION", "4")
    [told] = unknown_settings_check()
    assert "QUEUEOPS_ALERT_OF_A_LATER_VERSION is no setting of version" in told.msg


def test_what_the_client_is_told_by_the_environment_is_left_to_it():
    source = Path(queueops_client.__file__).parent / "cli"
    named = {name for path in source.glob("*.py") for name in re.findall(r'"(QUEUEOPS_\w+)"', path.read_text())}
    assert named == OF_THE_CLIENT
    assert read_from(**dict.fromkeys(named, "x")) == read_from()


def test_a_lease_must_outlast_a_missed_renewal():
    (problem,) = problems_of(DATABASE_REPLICA_URL="postgresql://h/queueops", QUEUEOPS_REPLICA_MAX_LAG_SECONDS="20")
    assert "QUEUEOPS_REPLICA_MAX_LAG_SECONDS" in problem
    (problem,) = problems_of(QUEUEOPS_LEASE_SECONDS="20", QUEUEOPS_RENEW_SECONDS="10")
    assert "QUEUEOPS_RENEW_SECONDS" in problem
    assert "QUEUEOPS_LEASE_SECONDS" in problem


def test_the_short_lease_profile_is_accepted():
    found = read_from(QUEUEOPS_LEASE_SECONDS="6", QUEUEOPS_RENEW_SECONDS="2", QUEUEOPS_SWEEP_SECONDS="1")
    assert found.lease_seconds == 6


def test_production_starts_with_what_it_requires():
    assert read_from(**PRODUCTION).debug is False


def test_production_refuses_to_start_without_a_key_hosts_and_tls_and_with_what_is_for_development():
    for missing in ("QUEUEOPS_SECRET_KEY", "QUEUEOPS_ALLOWED_HOSTS", "QUEUEOPS_TLS"):
        (problem,) = problems_of(**{key: value for key, value in PRODUCTION.items() if key != missing})
        assert problem.startswith(missing)
    for variable, value in (("QUEUEOPS_ALLOWED_HOSTS", "*"), ("QUEUEOPS_ALLOW_LOOPBACK_TARGETS", "on")):
        (problem,) = problems_of(**{**PRODUCTION, variable: value})
        assert problem.startswith(variable)


def test_every_setting_says_what_it_does_and_what_it_must_be():
    for declared, _ in declared_settings().values():
        assert declared.text.endswith(".")
        assert declared.rule


def stopped(**environ: str) -> str:
    """What a command says that cannot start."""
    result = subprocess.run(
        [sys.executable, "manage.py", "check"],
        cwd=ROOT,
        env={"PATH": "", **environ},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert result.returncode == 1
    assert "Traceback" not in result.stderr
    return result.stderr


def test_a_bad_value_stops_a_command_with_one_message_and_no_traceback():
    said = stopped(QUEUEOPS_PORT="nine", QUEUEOPS_WORKERS="0")
    assert "QUEUEOPS_PORT must be a whole number" in said
    assert "QUEUEOPS_WORKERS must be a whole number" in said


def test_a_data_directory_that_cannot_be_written_to_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    said = stopped(QUEUEOPS_DATA_DIR=str(tmp_path / "file" / "data"))
    assert "QUEUEOPS_DATA_DIR must be a directory that may be written to" in said
    assert f"{tmp_path}/file/data" in said


def test_apps_that_cannot_be_found_are_named():
    missing = ("no.such.app", "jobs.nothing", "nowhere.apps.Config")
    said = stopped(QUEUEOPS_EXTRA_APPS=" ".join(["tests.faults.app", *missing]))
    for app in missing:
        assert f"QUEUEOPS_EXTRA_APPS names '{app}', which cannot be found" in said
    assert "tests.faults.app'" not in said


def test_an_app_is_looked_for_without_running_the_package_it_is_in(tmp_path, monkeypatch):
    """Run before the settings stand, the package would load them half made."""
    (tmp_path / "outer" / "inner").mkdir(parents=True)
    (tmp_path / "outer" / "__init__.py").write_text("raise SystemExit('it was run')")
    (tmp_path / "outer" / "inner" / "__init__.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert read_from(QUEUEOPS_EXTRA_APPS="outer.inner").extra_apps == ("outer.inner",)
