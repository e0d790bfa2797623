"""The batch lane: jobs that a provider's batch API does at half the price, within a day."""

from jobs.feature import Feature, Tab

BATCH_LANE = Feature(
    package="jobs.features.batch_lane",
    page="how-to/batch-lane.md",
    addresses={
        "provider-batches/": "api.ProviderBatchList",
        "provider-batches/<uuid:pk>/": "api.ProviderBatchDetail",
        "provider-batches/<uuid:pk>/cancel/": "api.CancelProviderBatch",
    },
    screens="admin",
    tabs=(
        Tab("Provider batches", "jobs_providerbatch", after="jobs_batch"),
        Tab("Batch policies", "jobs_batchpolicy", after="jobs_agingrule"),
    ),
    viewer=("view_providerbatch", "view_batchpolicy"),
    operator=("steer_providerbatch",),
    administrator=("add_batchpolicy", "change_batchpolicy", "delete_batchpolicy"),
    rounds=("steps.lane.BatchLane",),
    watches=("watch.watch_provider_batches",),
    due=(
        "EXISTS (SELECT FROM jobs_job WHERE {{waits_for_batch}})",
        "EXISTS (SELECT FROM jobs_batchsearch WHERE closed_at IS NULL)",
        """
        EXISTS (SELECT FROM jobs_providerbatch
                 WHERE state IN ('creating', 'open', 'collecting')
                    OR closed_at IS NOT NULL AND is_kept AND NOT found_by_count)""",
    ),
    retention=("retention.CLOSED_BATCHES",),
    stays={
        "jobs_batchpolicy": "which way jobs go by default: set it there",
        "jobs_batchsearch": "after a restore, which credentials' batches are looked for there",
        "jobs_providerbatch": "batches at providers: a project that has an unfinished one is refused",
        "jobs_providerbatchline": "the lines of those",
    },
)
