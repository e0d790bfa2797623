"""The audit trail sent elsewhere: none missing, in order, whatever dies."""

from __future__ import annotations

import json
import re
import socket
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from django.core.management import CommandError, call_command
from django.db import connection, transaction

from jobs import cluster
from queueops.audit import sinks, stream, trail
from queueops.audit.models import AuditEntry, AuditStream
from queueops.site.diagnosis.finding import DoctorVerdict
from queueops.site.diagnosis.upkeep import examine_audit_stream
from tests.support.racing import run_together
from tests.support.syslog_receiver import Collector

pytestmark = pytest.mark.django_db(transaction=True)  # what is sent waits for whoever began before it, the test too

MESSAGE = re.compile(r"<110>1 \S+Z \S+ queueops - (\S+) - (\{.*\})")


@pytest.fixture
def collector(tmp_path: Path) -> Iterator[Collector]:
    made = Collector(tmp_path / "received")
    made.start()
    yield made
    made.kill()


def write(count: int, **fields: Any) -> None:
    for number in range(count):
        trail.record(**{"actor": "user:1", "action": "try_it", "target": f"thing {number}", **fields})


def target_of(collector: Collector) -> str:
    return f"syslog+tcp://127.0.0.1:{collector.port}"


def ids_in(messages: list[str]) -> list[int]:
    found = [MESSAGE.fullmatch(message) for message in messages]
    assert all(found), messages[:3]
    return [json.loads(one[2])["id"] for one in found if one]


def every_id() -> list[int]:
    return list(AuditEntry.objects.order_by("pk").values_list("pk", flat=True))


def first_times(ids: list[int]) -> list[int]:
    return list(dict.fromkeys(ids))


def test_every_entry_arrives_once_in_order_and_the_next_time_what_is_new(collector, monkeypatch):
    monkeypatch.setattr(stream, "MAX_ENTRIES", 50)
    write(123)
    assert stream.send_new(target_of(collector), seconds=60) == stream.Sent(123)
    write(2)
    assert stream.send_new(target_of(collector), seconds=60) == stream.Sent(2)
    assert ids_in(collector.messages()) == every_id()
    assert stream.lag_of(target_of(collector)) == stream.Lag(0, 0.0, "")


def test_an_entry_is_sent_as_it_is_kept_with_its_secrets_masked(tmp_path):
    write(1, action="change_webhook", project_id="", reason="token=abcdef", after={"secret": "x1", "url": "a\nb ü"})
    stream.send_new(f"file://{tmp_path}/audit.ndjson", seconds=10)
    text = (tmp_path / "audit.ndjson").read_text()
    assert text.count("\n") == 1
    assert text.isascii()
    said = json.loads(text)
    entry = AuditEntry.objects.get()
    assert datetime.fromisoformat(said.pop("created_at")) == entry.created_at
    assert said == {
        "id": entry.pk,
        "project_id": "",
        "actor": "user:1",
        "action": "change_webhook",
        "target": "thing 0",
        "moved": 1,
        "reason": "token=••••••",
        "address": "",
        "before": None,
        "after": {"secret": "••••••", "url": "a\nb ü"},
    }


def test_a_collector_that_is_killed_again_and_again_misses_none_and_gets_them_in_order(collector, monkeypatch):
    monkeypatch.setattr(stream, "MAX_ENTRIES", 40)
    target, stop = target_of(collector), threading.Event()

    def keep_writing() -> None:
        try:
            while not stop.is_set():
                write(5, after={"text": "x" * 2000})
        finally:
            connection.close()

    writer = threading.Thread(target=keep_writing)
    writer.start()
    kills = faults = 0
    while kills < 12:
        killer = threading.Timer(0.05 + 0.03 * kills, collector.kill)
        killer.start()
        faults += bool(stream.send_new(target, seconds=2).fault)
        killer.join()
        kills += 1
        faults += bool(stream.send_new(target, seconds=0.1).fault)
        collector.start()
    stop.set()
    writer.join()
    while stream.lag_of(target).entries:
        assert not stream.send_new(target, seconds=30).fault
    received = ids_in(collector.messages())
    assert first_times(received) == every_id()
    assert faults >= kills


def test_what_the_kernel_took_and_nobody_read_is_sent_again(tmp_path):
    """A collector that accepts, reads little and dies: all of it was handed over, and nothing has arrived."""
    write(3)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        target = f"syslog+tcp://127.0.0.1:{listener.getsockname()[1]}"

        def read_little() -> None:
            line = listener.accept()[0]
            line.recv(10)
            line.close()

        dying = threading.Thread(target=read_little)
        dying.start()
        assert stream.send_new(target, seconds=10).fault
        dying.join()
    assert AuditStream.objects.get().cursor == 0


def test_an_entry_that_commits_late_holds_those_behind_it_and_none_is_lost(tmp_path):
    target, begun, may_commit = f"file://{tmp_path}/audit", threading.Event(), threading.Event()

    def write_late() -> None:
        with transaction.atomic():
            write(1, target="late")
            begun.set()
            assert may_commit.wait(30)
        connection.close()

    late = threading.Thread(target=write_late)
    late.start()
    assert begun.wait(30)
    write(1, target="early")
    assert stream.send_new(target, seconds=0.5) == stream.Sent(0)
    may_commit.set()
    late.join()
    assert stream.send_new(target, seconds=10) == stream.Sent(2)
    told = [json.loads(line) for line in (tmp_path / "audit").read_text().splitlines()]
    assert [one["target"] for one in told] == ["late", "early"]
    assert [one["id"] for one in told] == every_id()


@pytest.mark.django_db
def test_a_transaction_has_its_id_before_an_entry_has_one():
    """Or one that took its entry's id first, and its own after the sender's, would be overtaken."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_get_expr(adbin, adrelid) FROM pg_attrdef WHERE adrelid = 'jobs_auditentry'::regclass")
        defaults = [text for (text,) in cursor.fetchall()]
    assert any("pg_current_xact_id() IS NOT NULL" in text and "nextval" in text for text in defaults)


def test_one_process_sends_at_a_time(tmp_path, monkeypatch):
    monkeypatch.setattr(stream, "MAX_ENTRIES", 50)
    write(500)
    target = f"file://{tmp_path}/audit"
    sent = run_together(6, lambda _: stream.send_new(target, seconds=30))
    assert sum(one.entries for one in sent) == 500
    received = [json.loads(line)["id"] for line in (tmp_path / "audit").read_text().splitlines()]
    assert received == every_id()


def test_a_sender_that_died_is_followed_when_its_term_is_over(tmp_path):
    write(1)
    target = f"file://{tmp_path}/audit"
    AuditStream.objects.create(target=target, holder="7d444840-9dc0-11d1-b245-5ffdce74fad2")
    AuditStream.objects.update(held_until=datetime.now(UTC) + timedelta(seconds=60))
    assert stream.send_new(target, seconds=10).is_held
    AuditStream.objects.update(held_until=datetime.now(UTC) - timedelta(seconds=1))
    assert stream.send_new(target, seconds=10) == stream.Sent(1)


def test_half_a_line_of_a_process_that_died_stands_alone(tmp_path):
    (tmp_path / "audit").write_text('{"id": 1, "cre')
    write(1)
    stream.send_new(f"file://{tmp_path}/audit", seconds=10)
    half, whole = (tmp_path / "audit").read_text().splitlines()
    assert half == '{"id": 1, "cre'
    assert json.loads(whole)["target"] == "thing 0"


def test_datagrams_are_sent_and_a_long_entry_is_cut():
    write(1)
    write(1, after={"text": "x" * 70_000})
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as collector:
        collector.bind(("127.0.0.1", 0))
        collector.settimeout(10)
        stream.send_new(f"syslog+udp://127.0.0.1:{collector.getsockname()[1]}", seconds=10)
        messages = [collector.recv(65_535).decode() for _ in range(2)]
    assert ids_in(messages) == every_id()
    assert ["cut" in message for message in messages] == [False, True]


def certificate(folder: Path) -> Path:
    """Of localhost, signed by itself, with its key."""
    key, name = ec.generate_private_key(ec.SECP256R1()), x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "here")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number(), now, now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    form = (serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    path = folder / "localhost.pem"
    path.write_bytes(
        made.public_bytes(serialization.Encoding.PEM) + key.private_bytes(serialization.Encoding.PEM, *form)
    )
    return path


def test_over_tls_it_arrives_and_only_where_the_certificate_is_known(tmp_path, monkeypatch):
    write(700)
    collector = Collector(tmp_path / "received", certificate=certificate(tmp_path))
    collector.start()
    target = f"syslog+tls://localhost:{collector.port}"
    try:
        assert "SSLCertVerificationError" in stream.send_new(target, seconds=10).fault
        assert collector.messages() == []
        monkeypatch.setenv("SSL_CERT_FILE", str(collector.certificate))
        assert stream.send_new(target, seconds=30) == stream.Sent(700)
        collector.kill()
        write(1)
        assert stream.send_new(target, seconds=10).fault
        collector.start()
        assert stream.send_new(target, seconds=10) == stream.Sent(1)
    finally:
        collector.kill()
    assert ids_in(collector.messages()) == every_id()


def test_the_doctor_tells_how_far_it_is_behind(configure_stream, collector):
    assert examine_audit_stream().observation.startswith("none is set")
    configure_stream(target_of(collector))
    write(3)
    cluster.stream_audit()
    assert (examine_audit_stream().verdict, collector.messages() != []) == (DoctorVerdict.OK, True)
    collector.kill()
    write(2)
    cluster.stream_audit()
    found = examine_audit_stream()
    assert found.verdict is DoctorVerdict.WARN
    assert "2 entries behind" in found.observation
    assert "Connection" in found.observation
    collector.start()
    cluster.stream_audit()
    assert examine_audit_stream().verdict is DoctorVerdict.OK


@pytest.fixture
def configure_stream(settings: Any) -> Any:
    def change(target: str) -> None:
        settings.QUEUEOPS = replace(settings.QUEUEOPS, audit_stream=target)

    return change


def test_the_command_sends_what_there_is_and_says_what_is_wrong(tmp_path, capsys):
    write(3)
    call_command("stream_audit", "--to", "-", "--once")
    assert [json.loads(line)["id"] for line in capsys.readouterr().out.splitlines()] == every_id()
    for given, said in (("syslog://x", "must be syslog"), ("file://relative", "must be syslog"), (None, "Say where")):
        with pytest.raises(CommandError, match=said):
            call_command("stream_audit", *(["--to", given] if given else []), "--once")
    with pytest.raises(CommandError, match="Connection"):
        call_command("stream_audit", "--to", "syslog+tcp://127.0.0.1:1", "--once", stderr=StringIO())


@pytest.mark.django_db
def test_sinks_are_named_by_their_scheme():
    assert sinks.sink_of("syslog+tls://logs.example.org:6514") == sinks.Connections(
        "logs.example.org", 6514, is_tls=True
    )
