"""Metrics of a service for Prometheus."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from onlad.serve.health import BUCKETS
from onlad.serve.service import Service

if TYPE_CHECKING:
    from onlad.serve.guard import Guard
    from onlad.serve.mqtt import Mqtt

# Counts of `Health.totals` by stream: name of the metric, what it counts.
COUNTERS = {
    "samples": ("onlad_samples", "Samples watched."),
    "bad": ("onlad_skipped", "Samples that could not be read and were skipped."),
    "anomalies": ("onlad_anomalies", "Samples above the threshold."),
    "n_alarms": ("onlad_alarms", "Alarms raised."),
    "suppressed": ("onlad_suppressed", "Alarms that were suppressed, since there were too many."),
    "drifts": ("onlad_drifts", "Times that a new normal was accepted."),
    "excluded": ("onlad_excluded", "Samples that were judged and not learned."),
}
GAUGES = {
    "devices": ("onlad_devices", "Devices watched."),
    "silent": ("onlad_silent", "Devices without a sample for longer than silent_after."),
    "failed": ("onlad_failed", "Devices that are set aside because their monitor failed."),
    "paused": ("onlad_paused", "Devices whose learning a person has paused."),
}


class Metrics(Collector):
    """The page that Prometheus reads."""

    def __init__(self, service: Service, mqtt: Mqtt | None, guard: Guard) -> None:
        self._service, self._mqtt, self._guard = service, mqtt, guard
        self._registry = CollectorRegistry()
        self._registry.register(self)

    def text(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics."""
        service, health, journal = self._service, self._service.health, self._service.store.journal
        totals = health.totals()
        for family, names in ((CounterMetricFamily, COUNTERS), (GaugeMetricFamily, GAUGES)):
            for key, (name, text) in names.items():
                by_stream = (([stream], each[key]) for stream, each in totals.items())
                yield _labelled(family(name, text, labels=["stream"]), by_stream)
        devices = [([w.stream.name, w.device], w) for w in service.watchers.values()]
        labels = ["stream", "device"]
        text = "When the last sample came, in seconds since 1970."
        seen = GaugeMetricFamily("onlad_last_seen_timestamp_seconds", text, labels=labels)
        yield _labelled(seen, ((where, w.seen) for where, w in devices))
        text = "Severity of the alarm of a device, 0 to 100; 0 without one."
        severity = GaugeMetricFamily("onlad_severity", text, labels=labels)
        yield _labelled(severity, ((where, w.severity) for where, w in devices))
        edges = [*(str(edge) for edge in BUCKETS.tolist()), "+Inf"]
        yield HistogramMetricFamily(
            "onlad_latency_seconds",
            "From the arrival of a message to its verdict and acknowledgement.",
            buckets=list(zip(edges, health.latency.cumsum().tolist(), strict=True)),
            sum_value=health.latency_sum,
        )
        dropped = CounterMetricFamily("onlad_dropped", "Thrown away, by what.", labels=["what"])
        lost = {**health.dropped, "alarm": service.outbox.dropped}
        yield _labelled(dropped, (([what], count) for what, count in lost.items()))
        for name, text, value in (
            ("onlad_duplicates", "Messages that came again.", health.duplicates),
            ("onlad_webhook_failures", "Attempts at the webhook that failed.",
             health.webhook_failures),
            ("onlad_quarantined", "Messages and rows set aside because they ended a process.",
             service.quarantine.count),
        ):  # fmt: skip
            yield CounterMetricFamily(name, text, value=value)
        gauges: list[tuple[str, str, float]] = [
            ("onlad_queue", "Messages that wait.", service.queue),
            ("onlad_outbox", "Alarms that are not delivered.", len(service.outbox.waiting)),
            ("onlad_checkpoint_age_seconds", "Since the last checkpoint.",
             service.disk.checkpoint_age),
            ("onlad_unsynced_bytes", "Not on the disk yet.", journal.written - journal.synced),
            ("onlad_ready", "1 if nothing is wrong.", not health.problems()),
        ]  # fmt: skip
        if self._mqtt is not None:
            gauges.append(("onlad_mqtt_connected", "1 with a broker.", self._mqtt.connected))
        for name, text, number in gauges:
            yield GaugeMetricFamily(name, text, value=float(number))
        text = "Requests refused."
        refused = CounterMetricFamily("onlad_http_refused", text, labels=["status"])
        counts = self._guard.refused.items()
        yield _labelled(refused, (([str(status)], count) for status, count in counts))


def _labelled(
    family: CounterMetricFamily | GaugeMetricFamily, values: Iterable[tuple[list[str], float]]
) -> Metric:
    for labels, value in values:
        family.add_metric(labels, value)
    return family
