"""The keys of development, each made once for a data directory."""

import base64
import contextlib
import os
import secrets
import tempfile
from pathlib import Path

from queueops.core.env.reading import BadConfiguration


def development_secret_key(data_dir: Path) -> str:
    """
    Return the key kept in `<data_dir>/secret_key` (mode 600), made by whichever process comes first.

    Raises:
        BadConfiguration: The key can neither be read nor made there.
    """
    try:
        return _kept(data_dir / "secret_key", new=secrets.token_urlsafe(64))
    except OSError as error:
        raise BadConfiguration(
            [f"QUEUEOPS_DATA_DIR must be a directory that may be written to; {str(data_dir)!r}: {error.strerror}"]
        ) from error


def development_credential_key(data_dir: Path) -> str:
    """Return the Fernet key kept in `<data_dir>/credential_key` (mode 600), made like the secret key."""
    return _kept(data_dir / "credential_key", new=base64.urlsafe_b64encode(secrets.token_bytes(32)).decode())


def development_payload_key(data_dir: Path) -> str:
    """Return the Fernet key kept in `<data_dir>/payload_key` (mode 600), made like the secret key."""
    return _kept(data_dir / "payload_key", new=base64.urlsafe_b64encode(secrets.token_bytes(32)).decode())


def _kept(path: Path, *, new: str) -> str:
    with contextlib.suppress(FileNotFoundError):
        return path.read_text().strip()
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o711)
    descriptor, draft = tempfile.mkstemp(dir=path.parent, prefix=f"{path.name}.")
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(new)
        # Linking fails if the name is taken: two processes that start at once get the same key.
        with contextlib.suppress(FileExistsError):
            path.hardlink_to(draft)
    finally:
        Path(draft).unlink()
    return path.read_text().strip()
