"""Streaming anomaly detection: learns what is normal one sample at a time, and follows drift."""

from onlad.detector import Detector, merge
from onlad.errors import ModelFileError, NotInModelError, OnladError
from onlad.monitor import Monitor
from onlad.persist import load, save
from onlad.verdict import Verdict, Verdicts

__all__ = [
    "Detector",
    "ModelFileError",
    "Monitor",
    "NotInModelError",
    "OnladError",
    "Verdict",
    "Verdicts",
    "load",
    "merge",
    "save",
]
