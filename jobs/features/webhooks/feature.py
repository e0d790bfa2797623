"""Webhooks: a project's own server is told of batches and jobs that have ended."""

from jobs.feature import Feature, Tab

WEBHOOKS = Feature(
    package="jobs.features.webhooks",
    page="how-to/webhooks.md",
    addresses={
        "webhooks/": "api.WebhookList",
        "webhooks/<uuid:pk>/": "api.WebhookDetail",
        "webhooks/<uuid:pk>/test/": "api.TestWebhook",
        "webhooks/<uuid:pk>/send-again/": "api.SendWebhookAgain",
        "webhooks/<uuid:pk>/deliveries/": "api.WebhookDeliveries",
        "webhooks/<uuid:pk>/jobs/": "api.WebhookJobs",
    },
    screens="admin",
    tabs=(
        Tab("Webhooks", "jobs_webhook", after="door_modelroute"),
        Tab("Deliveries", "jobs_webhookdelivery", after="jobs_webhook"),
    ),
    viewer=("view_webhook", "view_webhookdelivery"),
    administrator=("add_webhook", "change_webhook"),
    duties=("tell.WebhooksDuty",),
    watches=("watch.watch_receivers",),
)
