"""Webhooks: a project's own server is told of batches and jobs that have ended."""

from jobs.feature import Feature, Tab
from queueops.core.moved_rows import NUMBERED, OF_PROJECT, SEALED, Sort

WEBHOOKS = Feature(
    package="jobs.features.webhooks",
    page="how-to/webhooks.md",
    addresses={
        "webhooks/": "api.WebhookList",
        "webhooks/<uuid:pk>/": "api.WebhookDetail",
        "webhooks/<uuid:pk>/secret/": "api.ChangeWebhookSecret",
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
    # Begin with the webhooks, not with the jobs: many jobs may wait for a webhook that is off, paused or moved away.
    due=(
        """
        EXISTS (SELECT FROM jobs_webhook AS hook
                  JOIN tenancy_project AS project ON project.id = hook.project_id AND project.move = ''
                 CROSS JOIN LATERAL (SELECT FROM jobs_webhookjob AS told
                                      WHERE told.webhook_id = hook.id AND told.delivery_id IS NULL
                                      LIMIT 1) AS waiting
                 WHERE hook.enabled AND hook.paused_at IS NULL)""",
    ),
    goes_with_jobs=("jobs_webhookdelivery", "jobs_webhookjob"),
    keeps_batches=("jobs_webhookdelivery",),
    moves=(
        # The other installation tells nothing of the copied log: jobs that are still to be told move as rows.
        Sort(
            "webhooks",
            "jobs_webhook",
            leaves=frozenset({"secret", "former_secret", "former_secret_until", "jobs_since"}),
            write=(SEALED,),
            known_by="id",
            is_watched=True,
        ),
        Sort(
            "webhook deliveries",
            "jobs_webhookdelivery",
            f"webhook_id IN (SELECT id FROM jobs_webhook WHERE {OF_PROJECT})",  # noqa: S608 - our own words
            names_jobs=True,
        ),
        Sort("jobs told to webhooks", "jobs_webhookjob", leaves=NUMBERED, names_jobs=True),
    ),
    of_user=("webhooks.rows_of_user",),
)
