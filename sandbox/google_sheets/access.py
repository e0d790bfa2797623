"""Which spreadsheets exist, and who may see them."""

from fnmatch import fnmatchcase

from sandbox.envelopes import google_error
from sandbox.google_sheets.errors import MESSAGES, service_disabled
from sandbox.knobs.providers import GoogleSheetsKnobs


def check_access(spreadsheet_id: str, project: str, knobs: GoogleSheetsKnobs) -> None:
    """
    Refuse a spreadsheet that the caller may not see. As in the service, the quotas are checked before.

    Raises:
        ApiError: 403 or 404.
    """
    if project in knobs.disabled_projects:
        raise service_disabled(project)
    if any(fnmatchcase(spreadsheet_id, pattern) for pattern in knobs.forbidden_spreadsheets):
        raise google_error(403, MESSAGES[403])
    if knobs.spreadsheets is not None and spreadsheet_id not in knobs.spreadsheets:
        raise google_error(404, MESSAGES[404])
