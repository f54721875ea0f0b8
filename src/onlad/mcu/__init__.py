"""The monitor on a microcontroller: the same C source on the chip and in Python."""

from onlad.mcu.merging import merge
from onlad.mcu.portable import PortableMonitor

__all__ = ["PortableMonitor", "merge"]
