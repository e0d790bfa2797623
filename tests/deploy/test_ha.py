"""deploy/ha/make_hosts.py gives three hosts one set of passwords, each its own addresses, and overwrites nothing."""

from __future__ import annotations

import stat
import subprocess
import sys
from pathlib import Path

import yaml

from tests.support.deployment import DEPLOY

HOSTS = ("10.0.0.11", "10.0.0.12", "10.0.0.13")


def make_hosts(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = (sys.executable, "-I", "-S", str(DEPLOY / "ha/make_hosts.py"), *map(str, arguments))
    return subprocess.run(command, capture_output=True, text=True, check=False)


def read(path: Path) -> dict[str, str]:
    return dict(line.split("=", 1) for line in path.read_text().splitlines())


def test_each_host_has_its_own_addresses_and_all_have_the_same_passwords(tmp_path):
    assert make_hosts(tmp_path / "hosts", *HOSTS).stderr == ""
    made = [read(tmp_path / f"hosts/host-{number}.env") for number in (1, 2, 3)]
    assert [host["PATRONI_POSTGRESQL_LISTEN"] for host in made] == [f"{address}:5432" for address in HOSTS]
    differ = {name for name in made[0] if len({host[name] for host in made}) > 1}
    assert {
        name for name in differ if "PASSWORD" in name or "CLUSTER" in name or name == "PATRONI_ETCD3_HOSTS"
    } == set()
    passwords = [value for name, value in made[0].items() if name.endswith("PASSWORD")]
    assert len(set(passwords)) == 3
    assert read(tmp_path / "hosts/haproxy.env") == {f"HOST_{n}": address for n, address in enumerate(HOSTS, 1)}
    modes = {stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "hosts").iterdir()}
    assert modes == {0o600}


def test_files_that_are_there_are_left_alone_and_none_is_written_beside_them(tmp_path):
    (tmp_path / "host-3.env").write_text("in use")
    refused = make_hosts(tmp_path, *HOSTS)
    assert (refused.returncode, "host-3.env is there already" in refused.stderr) == (1, True)
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("host-3.env", "in use")]


def test_what_are_no_three_hosts_is_refused_and_nothing_is_written(tmp_path):
    for hosts, told in (
        (HOSTS[:2], "HOST"),
        (("h1", "h2", "h3"), "'h1' is no IPv4 address"),
        (("10.0.0.11", "10.0.0.11", "10.0.0.13"), "two hosts have the same address"),
    ):
        refused = make_hosts(tmp_path / "hosts", *hosts)
        assert (refused.returncode, told in refused.stderr) == (2, True)
        assert not (tmp_path / "hosts").exists()


def test_a_directory_that_cannot_be_made_is_told_in_a_sentence(tmp_path):
    (tmp_path / "file").touch()
    refused = make_hosts(tmp_path / "file/hosts", *HOSTS)
    assert (refused.returncode, refused.stderr) == (1, f"make_hosts.py: {tmp_path}/file/hosts: Not a directory.\n")


def test_a_primary_is_given_up_in_the_time_that_patroni_allows_and_by_a_standby_that_has_everything():
    told = yaml.safe_load((DEPLOY / "ha/patroni.yaml").read_text())["bootstrap"]["dcs"]
    assert told["synchronous_mode"] is True
    assert told["loop_wait"] + 2 * told["retry_timeout"] <= told["ttl"]
