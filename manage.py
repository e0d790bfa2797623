#!/usr/bin/env python
"""QueueOps from the command line."""

import os
import sys


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "queueops.settings")
    from django.core.management import execute_from_command_line

    from queueops.core import embedded

    with embedded.server_for_command(sys.argv):
        execute_from_command_line(sys.argv)


if __name__ == "__main__":
    main()
