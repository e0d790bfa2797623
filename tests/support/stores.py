"""A bucket of a server that speaks S3, taken for the one that is configured. Who uses the fixtures imports them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from django.conf import settings as django_settings

from queueops.core.stores import s3
from tests.support.s3_server import S3Server, s3_server


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    with s3_server() as running:
        yield running


@pytest.fixture
def use(settings, monkeypatch: pytest.MonkeyPatch) -> Callable[[S3Server], None]:
    """Take a server for the bucket's, as an operator does."""

    def use(server: S3Server) -> None:
        settings.QUEUEOPS = replace(django_settings.QUEUEOPS, s3_endpoint=server.url)
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", server.keys[0])
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", server.keys[1])
        monkeypatch.setattr(s3, "RETRIES", 1)

    return use
