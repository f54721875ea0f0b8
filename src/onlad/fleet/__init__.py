"""Many devices: banks run their models on one machine; beside them, Spark and what they share."""

from onlad.fleet.bank import Bank
from onlad.fleet.monitors import MonitorBank

__all__ = ["Bank", "MonitorBank"]
