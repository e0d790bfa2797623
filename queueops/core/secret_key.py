"""Development's secret key, made once for a data directory."""

import contextlib
import os
import secrets
import tempfile
from pathlib import Path


def development_secret_key(data_dir: Path) -> str:
    """Return the key kept in `<data_dir>/secret_key` (mode 600), made by whichever process comes first."""
    path = data_dir / "secret_key"
    with contextlib.suppress(FileNotFoundError):
        return path.read_text().strip()
    data_dir.mkdir(parents=True, exist_ok=True, mode=0o711)
    descriptor, draft = tempfile.mkstemp(dir=data_dir, prefix="secret_key.")
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(secrets.token_urlsafe(64))
        # A link fails where the name is taken: two first starts at once end up with one key.
        with contextlib.suppress(FileExistsError):
            path.hardlink_to(draft)
    finally:
        Path(draft).unlink()
    return path.read_text().strip()
