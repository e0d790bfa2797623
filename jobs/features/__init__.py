"""The queue's features, each in a folder of its own with a record of what it adds: see jobs/feature.py."""

from jobs.feature import Feature

from .archive.feature import ARCHIVE
from .batch_guards.feature import BATCH_GUARDS
from .batch_lane.feature import BATCH_LANE
from .budget_holds.feature import BUDGET_HOLDS
from .dependencies.feature import DEPENDENCIES
from .encryption.feature import ENCRYPTION
from .erasure.feature import ERASURE
from .fallback.feature import FALLBACK
from .flow.feature import FLOW
from .forecast.feature import FORECAST
from .objectives.feature import OBJECTIVES
from .outages.feature import OUTAGES
from .pools.feature import POOLS
from .recovery.feature import RECOVERY
from .refused_calls.feature import REFUSED_CALLS
from .results.feature import RESULTS
from .saved_filters.feature import SAVED_FILTERS
from .schedules.feature import SCHEDULES
from .served_kinds.feature import SERVED_KINDS
from .unique.feature import UNIQUE
from .uploads.feature import UPLOADS
from .watches.feature import WATCHES
from .webhooks.feature import WEBHOOKS
from .windows.feature import WINDOWS

# Tabs, duties, watches, addresses and moved rows come in this order. A tab's `after` must name an earlier tab.
FEATURES: tuple[Feature, ...] = (
    SERVED_KINDS,
    UNIQUE,
    OUTAGES,
    REFUSED_CALLS,
    FALLBACK,
    BATCH_GUARDS,
    RESULTS,
    POOLS,
    DEPENDENCIES,
    BUDGET_HOLDS,
    BATCH_LANE,
    SCHEDULES,
    OBJECTIVES,
    WINDOWS,
    UPLOADS,
    FORECAST,
    FLOW,
    WEBHOOKS,
    WATCHES,
    SAVED_FILTERS,
    ARCHIVE,
    ERASURE,
    ENCRYPTION,
    RECOVERY,
)
