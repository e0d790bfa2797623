"""How many examples a property is shown."""

from hypothesis import settings


def examples(wanted: int) -> int:
    """At most as many as the profile of the run has: its few in `make test`, all that are wanted at night."""
    of_profile = settings().max_examples
    return min(wanted, of_profile)
