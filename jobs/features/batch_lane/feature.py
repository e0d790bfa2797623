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
    tabs=(Tab("Provider batches", "jobs_providerbatch", after="jobs_batch"),),
    viewer=("view_providerbatch", "view_batchpolicy"),
    operator=("steer_providerbatch",),
    administrator=("add_batchpolicy", "change_batchpolicy", "delete_batchpolicy"),
    rounds=("lane.BatchLane",),
    watches=("watch.watch_provider_batches",),
)
