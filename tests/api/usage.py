"""A project whose users have an allowance, and what they reserve of it."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from tests.api.conftest import Api

RESERVE = "/usage/reserve/"
USER = UUID("018f6a52-0000-7000-8000-000000000001")
OTHER = UUID("018f6a52-0000-7000-8000-000000000002")


def reserve(api: Api, amount: int = 100, **fields: Any) -> Any:
    response = api.post(RESERVE, {"user_id": str(USER), "amount": amount, **fields})
    assert response.status_code == 201, response.content
    return response.json()
