"""One PostgreSQL server for the whole session: DATABASE_URL's, or a copy of an embedded one that is kept."""

import gc
import shutil
import signal
from collections.abc import Generator, Iterator
from typing import Any

import hypothesis
import pytest
from django.conf import settings

from queueops.core.embedded.cluster import EmbeddedServer
from queueops.core.processes.garbage import spare_the_collector
from tests.support.browser import find_chromium
from tests.support.templates import copy_template, database_for_tests

pytest_plugins = [
    "tests.support.sandbox",
    "tests.support.clock",
    "tests.support.earlier",
    "tests.support.figures",
    "tests.support.where_time_went",
    "tests.support.tiers",
    "tests.support.emptying",
    "tests.support.forgetting",
    "tests.support.workers",
    "tests.support.own_server",
    "tests.support.ordinary_login",
]

# A busy machine draws slowly.
_slow = hypothesis.settings(deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
# A run draws what the last one drew, or it would be red for what no change has made. The nightly form draws anew, with
# --hypothesis-profile=nightly, and keeps in .hypothesis what failed.
hypothesis.settings.register_profile("repeatable", _slow, max_examples=25, derandomize=True)
hypothesis.settings.register_profile("nightly", _slow, max_examples=1000, print_blob=True)
hypothesis.settings.load_profile("repeatable")
# Nobody cuts this server's power, and each emptied table is a file to be synced.
DURABLE = ("fsync", "full_page_writes")


@pytest.fixture(scope="session")
def database_server(django_db_blocker: Any) -> Iterator[None]:
    """Run the server for as long as the session lasts."""
    if settings.QUEUEOPS.database_url:
        yield
        return
    with django_db_blocker.unblock():
        server = copy_template(settings.QUEUEOPS.data_dir)
    with (server.cluster / "postgresql.auto.conf").open("a") as conf:
        conf.writelines(f"{name} = off\n" for name in DURABLE)
    with server.use():
        yield


@pytest.fixture(scope="session")
def django_db_modify_db_settings(database_server: None, django_db_modify_db_settings_parallel_suffix: None) -> None:
    """Start the server before the test database is made, and only if a test needs it."""


@pytest.fixture(scope="session")
def django_db_setup(
    django_test_environment: None, django_db_modify_db_settings: None, django_db_blocker: Any
) -> Iterator[None]:
    """In place of pytest-django's, which migrates each time."""
    with django_db_blocker.unblock(), database_for_tests():
        yield


def pytest_configure() -> None:
    # A shell has what runs in its background ignore it, and whatever that starts would, too.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # nohup has it ignored


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    # Nothing of what it makes is garbage, and each look through it costs more: a seventh of it.
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        spare_the_collector()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if find_chromium() is None:
        for item in items:
            if item.get_closest_marker("browser"):
                item.add_marker(pytest.mark.skip(reason="Chromium is not installed"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    # A report goes to the controller as UTF-8: half a surrogate pair in what a test logged would end its worker.
    report.sections = [(name, text.encode(errors="replace").decode()) for name, text in report.sections]
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    skipped = [
        report
        for report in terminalreporter.getreports("skipped")
        if "Chromium is not installed" in str(report.longrepr)
    ]
    if skipped:
        terminalreporter.section("NOT TESTED IN A BROWSER", red=True, bold=True)
        terminalreporter.line(f"{len(skipped)} browser tests were skipped; install Chromium to run them.")


def pytest_unconfigure() -> None:
    own = settings.QUEUEOPS.data_dir
    for directory in (own, *own.glob("gw*")):
        EmbeddedServer(directory).stop("immediate")  # of a worker that was interrupted
    shutil.rmtree(own, ignore_errors=True)
