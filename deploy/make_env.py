#!/usr/bin/env python3
"""
Print the environment of a new installation, with fresh secrets that others must not read:
`(umask 077 && make_env.py queue.example.org > queueops.env)`.

systemd (EnvironmentFile), Compose (.env) and `kubectl create secret --from-env-file` read it as it is.
"""

import argparse
import base64
import re
import secrets
import sys

LINES = """\
# Whoever has this file has everything: mode 600, and a copy that no backup of the database lies beside.
# Every setting is in docs/reference/settings.md.
QUEUEOPS_DEBUG=off
QUEUEOPS_SECRET_KEY={secret_key}
QUEUEOPS_CREDENTIAL_KEYS={credential_key}
QUEUEOPS_ALLOWED_HOSTS={domain}
QUEUEOPS_CSRF_TRUSTED_ORIGINS=https://{domain}
QUEUEOPS_PUBLIC_URL=https://{domain}
QUEUEOPS_TLS=on
QUEUEOPS_TLS_PROXY=on
QUEUEOPS_SECOND_FACTOR=required
QUEUEOPS_METRICS_TOKEN={metrics_token}
QUEUEOPS_ALERT_BACKUP_HOURS=30
DATABASE_URL=postgresql://queueops:{password}@{database}/queueops
# For deploy/database.sql, Compose and Caddy; the program does not read these.
DATABASE_PASSWORD={password}
DOMAIN={domain}
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("domain", help="the name people and producers reach it by, such as queue.example.org")
    parser.add_argument("--database", default="127.0.0.1:5432", metavar="HOST:PORT", help="default: %(default)s")
    given = parser.parse_args()
    if not re.fullmatch(r"[\w.-]+", given.domain):
        parser.error(f"{given.domain!r} is no host name; give one such as queue.example.org")
    if not re.fullmatch(r"[\w.-]+(:\d+)?(,[\w.-]+(:\d+)?)*", given.database):
        parser.error(f"{given.database!r} is no HOST:PORT, nor several with commas between them")
    sys.stdout.write(
        LINES.format(
            domain=given.domain,
            database=given.database,
            secret_key=secrets.token_urlsafe(64),
            credential_key=base64.urlsafe_b64encode(secrets.token_bytes(32)).decode(),
            metrics_token=secrets.token_urlsafe(32),
            password=secrets.token_hex(24),  # only letters and digits, because it is part of a URL
        )
    )


if __name__ == "__main__":
    main()
