"""The path by which an applied migration knows how a reservation gets its id."""

from ratelimits.usage.models import new_reservation_id

__all__ = ["new_reservation_id"]
