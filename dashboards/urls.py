"""Where the dashboards are. The websockets' addresses are in live/routing.py."""

from django.templatetags.static import static
from django.urls import path
from django.utils.functional import lazy
from django.views.generic import RedirectView

from .views import actions, find, me, ops

# Lazy: the address of static files depends on a setting that is read later.
ICON = lazy(static, str)("dashboards/icon.svg")

urlpatterns = [
    path("", ops.dashboard, name="dashboard"),
    path("find/", find.page, name="find"),
    path("live/ops.json", ops.ops_data, name="ops-data"),
    path("live/charts.json", ops.charts_data, name="charts-data"),
    path("live/users.json", ops.users_data, name="users-data"),
    path("live/feed.json", ops.feed_data, name="feed-data"),
    path("live/batches/<uuid:batch_id>/<slug:verb>", actions.act_on_batch, name="act-on-batch"),
    path("live/pauses/everything", actions.pause_everything, name="pause-everything"),
    path("live/pauses/<int:switch_id>/resume", actions.resume, name="resume"),
    path("live/ramp/<slug:verb>", actions.steer_ramp, name="steer-ramp"),
    path("live/alerts/<int:alert_id>/acknowledge", actions.acknowledge_alert, name="acknowledge-alert"),
    path("me/", me.page, name="me"),
    path("me/jobs/<uuid:job_id>/", me.job, name="me-job"),
    path("live/me/jobs/<uuid:job_id>.json", me.job_data, name="me-job-data"),
    path("live/me/jobs/<uuid:job_id>/requeue", me.requeue, name="me-requeue"),
    path("me/sign-in", me.sign_in, name="me-sign-in"),
    path("me/sign-out", me.sign_out, name="me-sign-out"),
    path("live/me.json", me.me_data, name="me-data"),
    path("favicon.ico", RedirectView.as_view(url=ICON, permanent=False)),
]
