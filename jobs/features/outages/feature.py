"""Outages: while a service does not answer, calls to it wait, and single probes find out when it answers again."""

from jobs.feature import Feature, Tab

OUTAGES = Feature(
    package="jobs.features.outages",
    page="runbooks/outage.md",
    screens="admin",
    tabs=(Tab("Service outages", "jobs_servicebreaker", after="ratelimits_resumeramp"),),
    viewer=("view_servicebreaker",),
    operator=("steer_servicebreaker",),
    duties=("breaker.BreakerDuty",),
    due=("EXISTS (SELECT FROM jobs_servicebreaker)",),
    stays={"jobs_servicebreaker": "outages of providers: the other installation finds out by itself"},
)
