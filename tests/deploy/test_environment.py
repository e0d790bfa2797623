"""deploy/make_env.py makes an environment that production starts with."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from queueops.core.env.reading import read
from tests.support.all_faults import all_faults
from tests.support.deployment import DEPLOY
from tests.support.environment import make_environment


def test_production_starts_with_it():
    found = read(make_environment("queue.example.org"), default_data_dir=Path("/nowhere"))
    assert not found.debug
    assert found.tls
    assert found.tls_proxy
    assert found.allowed_hosts == ("queue.example.org",)
    assert found.csrf_trusted_origins == (found.public_url,) == ("https://queue.example.org",)
    assert re.fullmatch(r"postgresql://queueops:\w{48}@127\.0\.0\.1:5432/queueops", found.database_url)


def test_the_program_gets_along_with_what_is_for_others():
    made = make_environment("queue.example.org", "--database", "database:5432")
    assert made["DATABASE_URL"] == f"postgresql://queueops:{made['DATABASE_PASSWORD']}@database:5432/queueops"
    assert made["DOMAIN"] == "queue.example.org"


def test_nothing_in_it_is_read_in_two_ways():
    made = make_environment("queue.example.org")
    assert [value for value in made.values() if not re.fullmatch(r"[\w:/@.=-]+", value)] == []


def test_no_secret_is_made_twice():
    names = ("QUEUEOPS_SECRET_KEY", "QUEUEOPS_CREDENTIAL_KEYS", "QUEUEOPS_METRICS_TOKEN", "DATABASE_PASSWORD")
    first, second = make_environment("a.example.org"), make_environment("a.example.org")
    assert [name for name in names if first[name] == second[name]] == []


def test_what_is_no_host_name_and_no_address_of_a_database_is_refused_in_a_sentence():
    domains = [[name] for name in ("https://queue.example.org", "queue.example.org:443", "a b", "", "*")]
    databases = [["--database", name, "queue.example.org"] for name in ("h:1/x y", "postgresql://h", "", "h:port")]
    with all_faults() as of:
        for given in domains + databases:
            command = [sys.executable, "-I", "-S", str(DEPLOY / "make_env.py"), *given]
            refused = subprocess.run(command, capture_output=True, text=True, check=False)
            no_host = "is no host name; give one such as queue.example.org"
            with of(given):
                assert (refused.returncode, refused.stdout) == (2, "")
                assert ("is no HOST:PORT" if given in databases else no_host) in refused.stderr


def test_several_servers_may_be_named():
    made = make_environment("queue.example.org", "--database", "h1:5432,h2:5432")
    assert read(made, default_data_dir=Path("/nowhere")).database_url.endswith("@h1:5432,h2:5432/queueops")
