"""The mail server's address, as one setting."""

from __future__ import annotations

import pytest

from queueops.core.mail import MailServer, mail_server
from queueops.core.values import parse


@pytest.mark.parametrize(
    ("url", "server"),
    [
        ("smtp://mail.example.org", MailServer("mail.example.org", 25, "", "", use_tls=False, use_ssl=False)),
        ("smtp+tls://u:p%40ss@mail:2525", MailServer("mail", 2525, "u", "p@ss", use_tls=True, use_ssl=False)),
        ("smtps://u%40x:p@mail", MailServer("mail", 465, "u@x", "p", use_tls=False, use_ssl=True)),
        ("", MailServer("", 25, "", "", use_tls=False, use_ssl=False)),
    ],
)
def test_an_address_says_where_as_whom_and_how_safely(url, server):
    assert mail_server(url) == server
    assert not url or parse.SMTP_URL.parse(url) == url


@pytest.mark.parametrize("url", ["mail.example.org", "http://mail", "smtp://", "smtp://mail:port", "smtp://mail/path"])
def test_what_is_no_mail_server_is_refused(url):
    with pytest.raises(ValueError, match=r".*"):
        parse.SMTP_URL.parse(url)


@pytest.mark.parametrize(
    ("given", "kept"), [("https://q.example.org", "https://q.example.org"), ("https://q.org/", "https://q.org")]
)
def test_a_public_address_is_kept_without_its_slash(given, kept):
    assert parse.ORIGIN.parse(given) == kept


@pytest.mark.parametrize("given", ["q.example.org", "ftp://q.org", "https://q.org/path", "https://a.org https://b.org"])
def test_what_is_no_public_address_is_refused(given):
    with pytest.raises(ValueError, match=r".*"):
        parse.ORIGIN.parse(given)
