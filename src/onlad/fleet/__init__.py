"""Many devices: `Bank` runs their models on one machine; beside it, Spark and what they share."""

from onlad.fleet.bank import Bank

__all__ = ["Bank"]
