"""Projects, keys, credentials and issuers: importing them registers their screens."""

from . import credentials, issuers, projects

__all__ = ["credentials", "issuers", "projects"]
