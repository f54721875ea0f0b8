"""Streaming anomaly detection: learns what is normal one sample at a time, and follows drift."""

from onlad._kernel import VERSION as __version__
from onlad.detector import Detector, merge
from onlad.errors import ModelFileError, NotInModelError, OnladError
from onlad.incident import Incident, Incidents
from onlad.monitor import Monitor
from onlad.oselm import OsElm
from onlad.persist import load, save
from onlad.verdict import Verdict, Verdicts

__all__ = [
    "Detector",
    "Incident",
    "Incidents",
    "ModelFileError",
    "Monitor",
    "NotInModelError",
    "OnladError",
    "OsElm",
    "Verdict",
    "Verdicts",
    "__version__",
    "load",
    "merge",
    "save",
]
