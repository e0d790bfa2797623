"""What one sandbox process remembers."""

from dataclasses import dataclass, field

from aiohttp import web

from sandbox.gate import Gate
from sandbox.ledger import Call, Ledger
from sandbox.sheets import Sheets


@dataclass(slots=True)
class State:
    gate: Gate = field(default_factory=Gate)
    ledger: Ledger = field(default_factory=Ledger)
    plain_sheets: Sheets = field(default_factory=Sheets)


STATE = web.AppKey("state", State)
CALL = web.RequestKey("call", Call)
