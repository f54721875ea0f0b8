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
    common = {
        "state_topic": f"{table.prefix}/{topic}/state",
        "availability_topic": f"{table.prefix}/status",
        "device": {"identifiers": [unique], "name": f"onlad {key}", "manufacturer": "onlad"},
    }
    alarm = {
        "name": "Alarm",
        "unique_id": f"{unique}_alarm",
        "device_class": "problem",
        "value_template": "{{ 'ON' if value_json.state in " + STATES + " else 'OFF' }}",
        "json_attributes_topic": f"{table.prefix}/{topic}/state",
    }
    score = {
        "name": "Score",
        "unique_id": f"{unique}_score",
        "state_class": "measurement",
        "value_template": "{{ value_json.score }}",
    }
    severity = {
        "name": "Severity",
        "unique_id": f"{unique}_severity",
        "state_class": "measurement",
        "value_template": "{{ value_json.severity }}",
        # Of each sensor: its value, what was expected, and the band around it.
        "json_attributes_topic": f"{table.prefix}/{topic}/state",
        "json_attributes_template": "{{ value_json.sensors | tojson }}",
    }
    yield f"{table.discovery}/sensor/{unique}/severity/config", common | severity
    yield f"{table.discovery}/binary_sensor/{unique}/alarm/config", common | alarm
    yield f"{table.discovery}/sensor/{unique}/score/config", common | score
