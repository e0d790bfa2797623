"""One PostgreSQL server for the whole session: DATABASE_URL's, or an embedded one of our own."""

import shutil
from collections.abc import Iterator

import pytest
from django.conf import settings

from queueops.core.embedded import EmbeddedServer


@pytest.fixture(scope="session")
def database_server() -> Iterator[None]:
    """Run the server for as long as the session lasts, and remove its directory afterwards."""
    if settings.QUEUEOPS.database_url:
        yield
        return
    with EmbeddedServer(settings.QUEUEOPS.data_dir).use():
        yield


@pytest.fixture(scope="session")
def django_db_modify_db_settings(database_server: None) -> None:
    """Start the server before pytest-django creates the test database, and only if a test needs it."""


def pytest_unconfigure() -> None:
    shutil.rmtree(settings.QUEUEOPS.data_dir, ignore_errors=True)
