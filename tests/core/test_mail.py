"""The mail server's address, as one setting."""

from __future__ import annotations

from itertools import product

import pytest

from queueops.core.mail import MailServer, mail_server
from queueops.core.values import parse
from tests.support.all_faults import all_faults


def test_an_address_says_where_as_whom_and_how_safely():
    for url, server in {
        "smtp://mail.example.org": MailServer("mail.example.org", 25, "", "", use_tls=False, use_ssl=False),
        "smtp+tls://u:p%40ss@mail:2525": MailServer("mail", 2525, "u", "p@ss", use_tls=True, use_ssl=False),
        "smtps://u%40x:p@mail": MailServer("mail", 465, "u@x", "p", use_tls=False, use_ssl=True),
        "": MailServer("", 25, "", "", use_tls=False, use_ssl=False),
    }.items():
        assert mail_server(url) == server
        assert not url or parse.SMTP_URL.parse(url) == url


def test_a_public_address_is_kept_without_its_slash():
    assert parse.ORIGIN.parse("https://q.example.org") == "https://q.example.org"
    assert parse.ORIGIN.parse("https://q.org/") == "https://q.org"


def test_what_is_no_mail_server_and_no_public_address_is_refused():
    servers = ("mail.example.org", "http://mail", "smtp://", "smtp://mail:port", "smtp://mail/path")
    origins = ("q.example.org", "ftp://q.org", "https://q.org/path", "https://a.org https://b.org")
    with all_faults() as of:
        for rule, given in [*product([parse.SMTP_URL], servers), *product([parse.ORIGIN], origins)]:
            with of(given), pytest.raises(ValueError, match=r".*"):
                rule.parse(given)
