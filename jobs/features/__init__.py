"""The queue's features, each in a folder of its own with a record of what it adds: see jobs/feature.py."""

from jobs.feature import Feature

from .batch_lane.feature import BATCH_LANE
from .objectives.feature import OBJECTIVES
from .schedules.feature import SCHEDULES
from .webhooks.feature import WEBHOOKS
from .windows.feature import WINDOWS

FEATURES: tuple[Feature, ...] = (BATCH_LANE, SCHEDULES, OBJECTIVES, WINDOWS, WEBHOOKS)
