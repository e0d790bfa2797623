"""Lets pages link to the site of docs/, if the installation has it."""

from django.conf import settings
from django.http import HttpRequest


def docs_site(_: HttpRequest) -> dict[str, bool]:
    """Tell templates whether /docs/ is there."""
    return {"has_docs_site": settings.SITE_ROOT.is_dir()}
