"""Keeps the path by which an applied migration imports the function that makes reservations' ids."""

from ratelimits.usage.models import new_reservation_id

__all__ = ["new_reservation_id"]
