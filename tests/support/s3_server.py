"""An S3-compatible server in a process of its own, which checks signatures and may be killed."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from urllib.request import Request, urlopen

import boto3
import pytest
from django.conf import settings as django_settings

from queueops.core.stores import s3
from tests.support.processes import free_port

REGION = "us-east-1"
BUCKET = "archive"
START_SECONDS = 60
EVERYTHING = '{"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "s3:*", "Resource": "*"}]}'


@dataclass
class S3Server:
    """
    A running server with a bucket.

    Attributes:
        keys: Access key and secret key of somebody who may do everything with it.
    """

    url: str
    process: subprocess.Popen[bytes]
    keys: tuple[str, str]

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@contextmanager
def s3_server() -> Iterator[S3Server]:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    process = subprocess.Popen(
        [sys.executable, "-c", "from moto.server import main; main()", "-H", "127.0.0.1", "-p", str(port)],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    server = S3Server(url, process, ("", ""))
    try:
        _wait_for(port, process)
        server.keys = _set_up(url)
        yield server
    finally:
        server.kill()


def _wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    ends = time.monotonic() + START_SECONDS
    while time.monotonic() < ends:
        assert process.poll() is None, "the server ended"
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
    raise AssertionError("the server does not listen")


def _set_up(url: str) -> tuple[str, str]:
    """Make the bucket and somebody who may use it; from then on every request must be signed by them."""
    anybody = {"endpoint_url": url, "region_name": REGION, "aws_access_key_id": "any", "aws_secret_access_key": "any"}
    boto3.client("s3", **anybody).create_bucket(Bucket=BUCKET)
    people = boto3.client("iam", **anybody)
    people.create_user(UserName="queueops")
    people.put_user_policy(UserName="queueops", PolicyName="all", PolicyDocument=EVERYTHING)
    key = people.create_access_key(UserName="queueops")["AccessKey"]
    urlopen(Request(f"{url}/moto-api/reset-auth", b"0", {"Content-Type": "text/plain"}), timeout=20).close()  # noqa: S310
    return key["AccessKeyId"], key["SecretAccessKey"]


@pytest.fixture(scope="module", name="server")
def shared_server() -> Iterator[S3Server]:
    with s3_server() as running:
        yield running


@pytest.fixture(name="use")
def use_server(settings, monkeypatch: pytest.MonkeyPatch) -> Callable[[S3Server], None]:
    """Take a server for the bucket's, as an operator does."""

    def use(server: S3Server) -> None:
        settings.QUEUEOPS = replace(django_settings.QUEUEOPS, s3_endpoint=server.url)
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", server.keys[0])
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", server.keys[1])
        monkeypatch.setattr(s3, "RETRIES", 1)

    return use
