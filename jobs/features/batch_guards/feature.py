"""Batch guards: a batch whose first jobs fail pauses itself."""

from jobs.feature import Feature

BATCH_GUARDS = Feature(
    package="jobs.features.batch_guards",
    page="how-to/submit.md",
    duties=("guards.tend_guards",),
    watches=("watch.watch_guards",),
)
