"""Metrics of a service for Prometheus."""

from __future__ import annotations

from collections.abc import Iterator
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

# Counts of `Service.totals` by stream: name of the metric, what it counts.
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


class _Collector(Collector):
    def __init__(self, service: Service, mqtt: Mqtt | None, guard: Guard | None) -> None:
        self.service, self.mqtt, self.guard = service, mqtt, guard

    def collect(self) -> Iterator[Metric]:
        service = self.service
        totals = service.health.totals()
        for key, (name, text) in COUNTERS.items():
            counter = CounterMetricFamily(name, text, labels=["stream"])
            for stream, counts in totals.items():
                counter.add_metric([stream], counts[key])
            yield counter
        for key, (name, text) in GAUGES.items():
            gauge = GaugeMetricFamily(name, text, labels=["stream"])
            for stream, counts in totals.items():
                gauge.add_metric([stream], counts[key])
            yield gauge
        seen = GaugeMetricFamily(
            "onlad_last_seen_timestamp_seconds",
            "When the last sample came, in seconds since 1970.",
            labels=["stream", "device"],
        )
        severity = GaugeMetricFamily(
            "onlad_severity",
            "Severity of the alarm of a device, 0 to 100; 0 without one.",
            labels=["stream", "device"],
        )
        for watcher in service.watchers.values():
            labels = [watcher.stream.name, watcher.device]
            seen.add_metric(labels, watcher.seen)
            alarm = watcher.alarm
            severity.add_metric(labels, alarm.severity if alarm is not None else 0.0)
        yield seen
        yield severity
        sums = service.health.latency.cumsum().tolist()
        edges = [*(str(edge) for edge in BUCKETS.tolist()), "+Inf"]
        yield HistogramMetricFamily(
            "onlad_latency_seconds",
            "From the arrival of a message to its verdict and acknowledgement.",
            buckets=list(zip(edges, sums, strict=True)),
            sum_value=service.health.latency_sum,
        )
        dropped = CounterMetricFamily("onlad_dropped", "Thrown away, by what.", labels=["what"])
        counts = service.health.dropped | {"alarm": service.outbox.dropped}
        for what, count in counts.items():
            dropped.add_metric([what], count)
        yield dropped
        yield CounterMetricFamily(
            "onlad_duplicates", "Messages that came again.", value=service.health.duplicates
        )
        yield CounterMetricFamily(
            "onlad_webhook_failures",
            "Attempts at the webhook that failed.",
            value=service.health.webhook_failures,
        )
        yield CounterMetricFamily(
            "onlad_quarantined",
            "Messages and rows set aside because they ended a process.",
            value=service.quarantine.count,
        )
        age = service.disk.checkpoint_age
        journal = service.store.journal
        for name, text, value in [
            ("onlad_queue", "Messages that wait.", service.queue),
            ("onlad_outbox", "Alarms that are not delivered.", len(service.outbox.waiting)),
            ("onlad_checkpoint_age_seconds", "Since the last checkpoint.", age),
            ("onlad_unsynced_bytes", "Not on the disk yet.", journal.written - journal.synced),
            ("onlad_ready", "1 if nothing is wrong.", not service.health.problems()),
        ]:
            yield GaugeMetricFamily(name, text, value=float(value))
        if self.mqtt is not None:
            yield GaugeMetricFamily(
                "onlad_mqtt_connected", "1 with a broker.", value=float(self.mqtt.connected)
            )
        if self.guard is not None:
            refused = CounterMetricFamily(
                "onlad_http_refused", "Requests refused.", labels=["status"]
            )
            for status, count in self.guard.refused.items():
                refused.add_metric([str(status)], count)
            yield refused


class Metrics:
    """The page that Prometheus reads."""

    def __init__(self, service: Service, mqtt: Mqtt | None, guard: Guard | None = None) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(_Collector(service, mqtt, guard))

    def text(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        return generate_latest(self._registry)
