"""Tables of gauges: each row is a name, a sentence and a function from value to number."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from prometheus_client import generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Gauge(Generic[T]):
    """One series per value; a value that reads as None has none."""

    name: str
    text: str
    read: Callable[[T], float | None]


def tabulate(
    gauges: Iterable[Gauge[T]],
    labels: Sequence[str],
    rows: Sequence[tuple[Sequence[str], T]],
) -> Iterator[Metric]:
    """Every gauge over every row of label values and value."""
    for gauge in gauges:
        family = GaugeMetricFamily(gauge.name, gauge.text, labels=labels)
        for values, each in rows:
            number = gauge.read(each)
            if number is not None:
                family.add_metric(values, number)
        yield family


@dataclass(frozen=True, slots=True)
class _Page:
    """Metrics that were put together already."""

    metrics: tuple[Metric, ...]

    def collect(self) -> tuple[Metric, ...]:
        """All of them."""
        return self.metrics


def render(metrics: Iterable[Metric]) -> bytes:
    """The metrics in the text form that Prometheus reads."""
    return generate_latest(_Page(tuple(metrics)))
