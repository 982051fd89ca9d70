"""How current the watches of a service are, as Prometheus metrics."""

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from slicewise.kube.watch import WatchMonitor


def collect_watches(watches: WatchMonitor) -> Iterator[Metric]:
    ages = GaugeMetricFamily(
        "slicewise_watch_age_seconds",
        "Seconds since a watch was last proven to hold nothing back.",
        labels=["resource"],
    )
    for resource, age in sorted(watches.ages.items()):
        ages.add_metric([resource], age)
    yield ages
    skipped = CounterMetricFamily(
        "slicewise_watch_objects_skipped",
        "Objects that could not be read and were left as they were last known.",
        labels=["resource"],
    )
    for resource, count in sorted(watches.skipped.items()):
        skipped.add_metric([resource], count)
    yield skipped
