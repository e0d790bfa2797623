"""The screens of projects, keys, credentials and issuers: importing this package registers them."""

from . import credentials, issuers, projects

__all__ = ["credentials", "issuers", "projects"]
