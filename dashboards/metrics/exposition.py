"""The samples in Prometheus' text format."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import accumulate

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from dashboards.services.shared.cache import CachedRead

from .catalogue import METRICS, PREFIX, Metric
from .process import read_process
from .samples import Histogram, Sample, Value, read_samples

SAMPLES_KEPT_SECONDS = 5.0

Family = CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily

kept_samples: CachedRead[list[Sample]] = CachedRead(read_samples, seconds=SAMPLES_KEPT_SECONDS)


class DatabaseCollector(Collector):
    """Reads the samples from the database at each scrape, so that several processes export the same."""

    def collect(self) -> Iterator[Family]:
        return families([*kept_samples.get(), *read_process()])


registry = CollectorRegistry(auto_describe=False)
registry.register(DatabaseCollector())


def exposition() -> bytes:
    """Return the page of all samples, in Prometheus' text format 0.0.4."""
    return generate_latest(registry)


def families(samples: Iterable[Sample]) -> Iterator[Family]:
    """Group samples by metric, in the catalogue's order; a metric without a sample is exported without a value."""
    by_metric: dict[str, list[Sample]] = {name: [] for name in METRICS}
    for sample in samples:
        by_metric[sample.metric].append(sample)
    for name, members in by_metric.items():
        yield _family(METRICS[name], members)


def _family(metric: Metric, samples: Iterable[Sample]) -> Family:
    name = PREFIX + metric.name
    family: Family
    if metric.kind == "histogram":
        family = HistogramMetricFamily(name, metric.text, labels=metric.labels)
        for sample in samples:
            assert isinstance(sample, Histogram)  # noqa: S101 - narrows the type
            reached = list(accumulate(sample.counts)) or [0] * (len(sample.bounds) + 1)
            bounds = [*map(_bound, sample.bounds), "+Inf"]
            buckets = list(zip(bounds, reached, strict=True))
            family.add_metric(sample.labels, buckets, sum_value=sample.total)
        return family
    kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
    family = kind(name, metric.text, labels=metric.labels)
    for sample in samples:
        assert isinstance(sample, Value)  # noqa: S101 - narrows the type
        family.add_metric(sample.labels, sample.value)
    return family


def _bound(value: float) -> str:
    return str(float(value))
