"""The memory of one sandbox process."""

from dataclasses import dataclass, field

from aiohttp import web

from sandbox.anthropic.cache import PromptCache
from sandbox.batches.intake import UploadedForm
from sandbox.batches.store import BatchBook
from sandbox.billing import Billing
from sandbox.gate import Fate, Gate
from sandbox.google_sheets.workbook import Workbook
from sandbox.ledger import Ledger, ReceivedCall
from sandbox.plain.rows import Sheets
from sandbox.provider import Arrival


@dataclass(slots=True)
class State:
    gate: Gate = field(default_factory=Gate)
    ledger: Ledger = field(default_factory=Ledger)
    plain_sheets: Sheets = field(default_factory=Sheets)
    workbook: Workbook = field(default_factory=Workbook)
    prompt_cache: PromptCache = field(default_factory=PromptCache)
    batches: BatchBook = field(default_factory=BatchBook)
    billing: Billing = field(default_factory=Billing)
    revoked_keys: set[str] = field(default_factory=set)


STATE = web.AppKey("state", State)
CALL = web.RequestKey("call", ReceivedCall)
ARRIVAL = web.RequestKey("arrival", Arrival)
FATE = web.RequestKey("fate", Fate)
BODY = web.RequestKey("body", bytes)
UPLOAD = web.RequestKey("upload", UploadedForm)
