#!/usr/bin/env python3
"""
Write the settings of Patroni and etcd for three hosts, and of HAProxy: `make_hosts.py DIRECTORY HOST HOST HOST`.

DIRECTORY gets host-1.env to host-3.env, each for one host, and haproxy.env for each host of web or workers. systemd
reads these files (EnvironmentFile). The first three hold the same fresh passwords: others must not read them.
"""

import argparse
import ipaddress
import os
import secrets
import sys
from pathlib import Path

HOST = """\
PATRONI_NAME=postgres-{number}
PATRONI_ETCD3_HOSTS={etcd}
PATRONI_RESTAPI_LISTEN={address}:8008
PATRONI_RESTAPI_CONNECT_ADDRESS={address}:8008
PATRONI_RESTAPI_USERNAME=patroni
PATRONI_RESTAPI_PASSWORD={restapi}
PATRONI_POSTGRESQL_LISTEN={address}:5432
PATRONI_POSTGRESQL_CONNECT_ADDRESS={address}:5432
PATRONI_POSTGRESQL_DATA_DIR=/var/lib/postgresql/queueops
PATRONI_POSTGRESQL_BIN_DIR=/usr/lib/postgresql/15/bin
PATRONI_SUPERUSER_USERNAME=postgres
PATRONI_SUPERUSER_PASSWORD={superuser}
PATRONI_REPLICATION_USERNAME=replicator
PATRONI_REPLICATION_PASSWORD={replication}
ETCD_NAME=etcd-{number}
ETCD_DATA_DIR=/var/lib/etcd/queueops
ETCD_LISTEN_PEER_URLS=http://{address}:2380
ETCD_INITIAL_ADVERTISE_PEER_URLS=http://{address}:2380
ETCD_LISTEN_CLIENT_URLS=http://{address}:2379
ETCD_ADVERTISE_CLIENT_URLS=http://{address}:2379
ETCD_INITIAL_CLUSTER={members}
ETCD_INITIAL_CLUSTER_TOKEN=queueops
ETCD_INITIAL_CLUSTER_STATE=new
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path, help="where the files go; it is made if it is not there")
    parser.add_argument("addresses", nargs=3, metavar="HOST", help="a host's IPv4 address in your network")
    given = parser.parse_args()
    for address in given.addresses:
        try:
            ipaddress.IPv4Address(address)
        except ValueError:
            parser.error(f"{address!r} is no IPv4 address; give one such as 10.0.0.11")
    if len(set(given.addresses)) < len(given.addresses):
        parser.error("two hosts have the same address: give three hosts, or one that dies takes the majority along")
    hosts = dict(enumerate(given.addresses, start=1))
    shared = {
        "etcd": ",".join(f"{address}:2379" for address in hosts.values()),
        "members": ",".join(f"etcd-{number}=http://{address}:2380" for number, address in hosts.items()),
        **{name: secrets.token_hex(24) for name in ("restapi", "superuser", "replication")},
    }
    files = {
        f"host-{number}.env": HOST.format(number=number, address=address, **shared) for number, address in hosts.items()
    }
    files["haproxy.env"] = "".join(f"HOST_{number}={address}\n" for number, address in hosts.items())
    try:
        write(given.directory, files)
    except OSError as error:
        sys.exit(f"make_hosts.py: {error.filename}: {error.strerror}.")


def write(directory: Path, files: dict[str, str]) -> None:
    """Write all files, or none if one exists: a host with other passwords than the rest could not join."""
    directory.mkdir(parents=True, exist_ok=True)
    there = [name for name in files if (directory / name).exists()]
    if there:
        sys.exit(
            f"make_hosts.py: {directory / there[0]} is there already; its passwords may be in use. Remove it first."
        )
    for name, text in files.items():
        with open(directory / name, "x", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
            file.write(text)


if __name__ == "__main__":
    main()
