#!/usr/bin/env python
"""QueueOps from the command line."""

import io
import multiprocessing
import os
import sys


def main() -> None:
    refuse_bytes()
    for stream in (sys.stdout, sys.stderr):  # a terminal of another encoding: told by its code, and no traceback
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        try:
            carry_out()
        finally:
            sys.stdout.flush()
    except KeyboardInterrupt:
        sys.stderr.write("Interrupted.\n")
        sys.exit(130)
    except OSError as error:
        if not output_is_lost():
            raise  # a defect
        sys.exit(f"What the command says cannot be written: {error.strerror}.")


def carry_out() -> None:
    if sys.argv[1:] in (["version"], ["--version"]):  # Django would tell its own
        from queueops.core.version import full_version

        sys.stdout.write(f"QueueOps {full_version()}\n")
        return
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "queueops.settings")
    from queueops.core.processes.garbage import collect_seldom

    collect_seldom()  # before all else is imported
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


def output_is_lost() -> bool:
    """Whether nothing can be written any more: `| head` has ended, or the disk is full. Lets Python end without it."""
    try:
        sys.stdout.write("\n")
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return True
    return False


def refuse_bytes() -> None:
    """No command could print such an argument, or ask the database about it."""
    for number, argument in enumerate(sys.argv[1:], 1):
        try:
            argument.encode()
        except UnicodeEncodeError:
            sys.exit(f"Argument {number} is not UTF-8.")


if __name__ == "__main__":
    main()
