"""Where the browser of the browser tests is."""

import shutil

CHROMIUM_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def find_chromium() -> str | None:
    """Return the path of an installed Chromium, for playwright's `executable_path`."""
    return next((path for name in CHROMIUM_NAMES if (path := shutil.which(name))), None)
