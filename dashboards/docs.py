"""Generated pages of the dashboards."""

from dashboards.metrics.catalogue import METRICS, SERVICES_NOTE
from dashboards.metrics.exposition import SAMPLES_KEPT_SECONDS
from queueops.core.generated_docs import generated_page

_HEAD = f"""\
# Metrics

After this page you can look up what each metric of `/metrics` counts.

Written by `manage.py write_docs` from `dashboards/metrics/catalogue.py`; change it there.

`GET /metrics`, in Prometheus' text format. All but those of a web process itself are read from the database, at most
every {SAMPLES_KEPT_SECONDS:g} seconds: each web process tells the same, so scrape one of them, or all and take the
maximum. Counters are summed up from the job log within seconds, each event once, and survive restarts.

{SERVICES_NOTE} A histogram `name` is exported as `name_bucket`, `name_sum` and `name_count`.

How to scrape, and what to watch: [monitor](../how-to/monitor.md).

| metric | kind | labels | what it tells |
| --- | --- | --- | --- |
"""


@generated_page("reference/metrics.md")
def metrics_page() -> str:
    rows = (
        f"| `{metric.exported}` | {metric.kind} | {', '.join(metric.labels) or 'none'} | {metric.text} |"
        for metric in METRICS.values()
    )
    return _HEAD + "\n".join(rows) + "\n"
