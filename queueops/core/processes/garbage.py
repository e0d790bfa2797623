"""How often a long-running process collects garbage."""

import gc

GARBAGE_AFTER = 10_000  # so many more objects made than freed; Python's default is 700


def collect_seldom() -> None:
    """Make Python collect garbage seldom. Or a start looks 238 times through what it imports, a tenth of its time."""
    gc.set_threshold(GARBAGE_AFTER, 10, 10)


def spare_the_collector() -> None:
    """
    Make Python collect garbage seldom, and skip imported objects. Call this once everything is imported.

    An executor makes some thirty objects a job, and the web process as many for each job that it takes in. With
    Python's own thresholds a fifth of their time goes into looking through all of Django again.
    """
    gc.collect()
    gc.freeze()
    collect_seldom()
