"""Refused calls: what a provider refuses again and again is stopped, by account, model or credential."""

from jobs.feature import Feature

REFUSED_CALLS = Feature(
    package="jobs.features.refused_calls",
    page="how-to/credential-pools.md",
    duties=("stops.tend_stops",),
    rounds=("another_way.StoppedRounds",),
    due=("EXISTS (SELECT FROM jobs_pauseswitch WHERE scope = 'refused')",),
    stays={"jobs_refusedcalls": "calls that providers refuse: the other installation finds out by itself"},
)
