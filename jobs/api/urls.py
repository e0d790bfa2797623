"""The addresses of the queue's API, below /api/v1/."""

from django.urls import URLPattern, path

from jobs.features import FEATURES

from .views import (
    at_once,
    audit,
    batch_actions,
    batches,
    dead_letters,
    handlers,
    job_actions,
    jobs,
    log,
    operations,
    projects,
    results,
)

urlpatterns: list[URLPattern] = [
    path("jobs/", jobs.JobList.as_view()),
    path("jobs/cancel/", job_actions.CancelJobs.as_view()),
    path("jobs/schedule/", job_actions.ScheduleJobs.as_view()),
    path("jobs/reset/", job_actions.ResetJobs.as_view()),
    path("jobs/priority/", job_actions.ChangeJobsPriority.as_view()),
    path("jobs/<uuid:pk>/", jobs.JobDetail.as_view()),
    path("jobs/<uuid:pk>/result/", jobs.JobResult.as_view()),
    path("jobs/<uuid:pk>/events/", jobs.JobEvents.as_view()),
    path("jobs/<uuid:pk>/cancel/", job_actions.CancelJob.as_view()),
    path("jobs/<uuid:pk>/schedule/", job_actions.ScheduleJob.as_view()),
    path("jobs/<uuid:pk>/reset/", job_actions.ResetJob.as_view()),
    path("jobs/<uuid:pk>/priority/", job_actions.ChangeJobPriority.as_view()),
    path("jobs/<uuid:pk>/retry/", job_actions.RetryJob.as_view()),
    path("jobs/<uuid:pk>/go-on/", job_actions.GoOnJob.as_view()),
    path("batches/<uuid:pk>/go-on/", batch_actions.GoOnBatch.as_view()),
    path("batches/", batches.BatchList.as_view()),
    path("batches/<uuid:pk>/", batches.BatchDetail.as_view()),
    path("batches/<uuid:pk>/waiting/", batches.BatchWaiting.as_view()),
    path("batches/<uuid:pk>/jobs/", batches.BatchJobs.as_view()),
    path("batches/<uuid:pk>/results/", results.BatchResults.as_view()),
    path("batches/<uuid:pk>/table/", results.BatchTable.as_view()),
    path("batches/<uuid:pk>/cancel/", batch_actions.CancelBatch.as_view()),
    path("batches/<uuid:pk>/pause/", batch_actions.PauseBatch.as_view()),
    path("batches/<uuid:pk>/resume/", batch_actions.ResumeBatch.as_view()),
    path("batches/<uuid:pk>/priority/", batch_actions.ChangeBatchPriority.as_view()),
    path("batches/<uuid:pk>/retry/", batch_actions.RetryBatch.as_view()),
    path("audit/", audit.AuditList.as_view()),
    path("events/", log.EventList.as_view()),
    path("dead-letters/", dead_letters.DeadLetterList.as_view()),
    path("dead-letters/requeue/", dead_letters.RequeueDeadLetters.as_view()),
    path("dead-letters/discard/", dead_letters.DiscardDeadLetters.as_view()),
    path("dead-letters/<uuid:pk>/", dead_letters.DeadLetterDetail.as_view()),
    path("dead-letters/<uuid:pk>/requeue/", dead_letters.RequeueDeadLetter.as_view()),
    path("dead-letters/<uuid:pk>/discard/", dead_letters.DiscardDeadLetter.as_view()),
    path("handlers/", handlers.HandlerList.as_view()),
    path("operations/", operations.OperationList.as_view()),
    path("operations/<uuid:pk>/", operations.OperationDetail.as_view()),
    path("operations/<uuid:pk>/cancel/", operations.CancelOperation.as_view()),
    path("at-once/", at_once.AtOnceCaps.as_view()),
    path("at-once/<int:pk>/", at_once.AtOnceCap.as_view()),
    path("project/", projects.ProjectDetail.as_view()),
    path("project/pause/", projects.PauseProject.as_view()),
    path("project/resume/", projects.ResumeProject.as_view()),
    *(
        path(address, feature.find(view).as_view())
        for feature in FEATURES
        for address, view in feature.addresses.items()
    ),
]
