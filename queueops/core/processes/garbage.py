"""How often a process that stays looks for garbage."""

import gc

GARBAGE_AFTER = 10_000  # objects more than were freed; Python's own is 700


def spare_the_collector() -> None:
    """
    Have Python look for garbage seldom, and not among what was imported. Call it once everything is imported.

    An executor makes some thirty objects a job, and the web process as many for each job that it takes in. With
    Python's own thresholds a fifth of their time goes into looking through all of Django again.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(GARBAGE_AFTER, 10, 10)
