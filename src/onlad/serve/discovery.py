"""Home Assistant finds each device by itself: an alarm, a score, and a severity with bands."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

from onlad.serve.tables import MqttTable

STATES = "('alarm', 'silent', 'failed')"  # in which something is wrong


def configs(table: MqttTable, key: str, topic: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the topics and messages of MQTT discovery for a device."""
    # Names from the network may hold what an identifier may not.
    unique = f"onlad_{hashlib.sha256(f'{table.prefix}/{key}'.encode()).hexdigest()[:16]}"
    common: dict[str, Any] = {
        "state_topic": f"{table.prefix}/{topic}/state",
        "availability_topic": f"{table.prefix}/status",
        "device": {"identifiers": [unique], "name": f"onlad {key}", "manufacturer": "onlad"},
    }
    attributes = {"json_attributes_topic": common["state_topic"]}
    score, severity = (
        {"state_class": "measurement", "value_template": f"{{{{ value_json.{name} }}}}"}
        for name in ("score", "severity")
    )
    # Of each sensor: its value, what was expected, and the band around it.
    severity |= attributes | {"json_attributes_template": "{{ value_json.sensors | tojson }}"}
    alarm = attributes | {
        "device_class": "problem",
        "value_template": "{{ 'ON' if value_json.state in " + STATES + " else 'OFF' }}",
    }
    kinds = (("sensor", "severity", severity), ("binary_sensor", "alarm", alarm),
             ("sensor", "score", score))  # fmt: skip
    for kind, name, own in kinds:
        named = {"name": name.capitalize(), "unique_id": f"{unique}_{name}"}
        yield f"{table.discovery}/{kind}/{unique}/{name}/config", common | named | own
