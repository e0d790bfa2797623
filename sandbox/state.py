"""What one sandbox process remembers."""

from dataclasses import dataclass, field

from aiohttp import web

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


STATE = web.AppKey("state", State)
CALL = web.RequestKey("call", ReceivedCall)
ARRIVAL = web.RequestKey("arrival", Arrival)
FATE = web.RequestKey("fate", Fate)
