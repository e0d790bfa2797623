"""Parameters of hot statements, as PostgreSQL reads them."""

from __future__ import annotations

import pytest
from django.db import connection

from queueops.core.sql import text_array

ODD = ["", "NULL", "null", "a,b", "{}", '{"a": "b\\n\\"c\\""}', "\\", '"', "\n\t", " spaced ", "Grüße", "%(x)s", "$1"]


@pytest.mark.django_db
def test_every_text_of_an_array_arrives_as_it_was_given():
    given = [*ODD, None]
    with connection.cursor() as cursor:
        cursor.execute("SELECT %s::text[]", [text_array(given)])
        assert cursor.fetchone() == (given,)


def test_an_array_of_nothing_is_null():
    assert text_array([]) is text_array([None, None]) is None
