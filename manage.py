#!/usr/bin/env python
"""QueueOps from the command line."""

import multiprocessing
import os
import sys


def main() -> None:
    if sys.argv[1:] in (["version"], ["--version"]):  # Django would tell its own
        from queueops.core.version import full_version

        sys.stdout.write(f"QueueOps {full_version()}\n")
        return
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "queueops.settings")
    from django.core.management import execute_from_command_line
    from django.db import OperationalError, ProgrammingError

    from queueops.core.embedded.cluster import server_for_command
    from queueops.core.errors import QueueOpsError
    from queueops.core.postgres.conditions import NOT_MIGRATED, is_not_migrated

    try:
        with server_for_command(sys.argv):
            execute_from_command_line(sys.argv)
            # qcluster returns as soon as its processes run: they need the database, and tell how they ended.
            for child in multiprocessing.active_children():
                child.join()
                if child.exitcode:
                    sys.exit(f"a process of it ended with {child.exitcode}")
    except QueueOpsError as error:
        sys.exit(error.message)
    except OperationalError as error:
        sys.exit(f"The database does not answer (DATABASE_URL says where it is): {' '.join(str(error).split())}")
    except ProgrammingError as error:
        if not is_not_migrated(error):
            raise  # a defect
        sys.exit(NOT_MIGRATED)


if __name__ == "__main__":
    main()
