"""Streaming anomaly detection: learns what is normal one sample at a time, and follows drift."""

from onlad.detector import Detector, merge
from onlad.errors import ModelFileError, NotInModelError, OnladError

__all__ = ["Detector", "ModelFileError", "NotInModelError", "OnladError", "merge"]
