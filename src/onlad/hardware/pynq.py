"""The core on a PYNQ board.

Import this before the overlay is loaded, and `overlay.onlad` is the core::

import onlad.hardware.pynq
from pynq import Overlay

device = Overlay("onlad.bit").onlad     # a Device: load, score_one, learn_one, update_one, ...
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from pynq import DefaultHierarchy, allocate

from onlad.errors import OnladError
from onlad.hardware import packets
from onlad.hardware.driver import Device
from onlad.hardware.packets import Words
from onlad.hardware.transport import Answers

_DMA = "xilinx.com:ip:axi_dma:"
_WORDS = 1 << 15  # a buffer: 256 KB of the few megabytes that are contiguous
_PATIENCE = 10.0  # seconds; the longest buffer takes less than one


class Dma:
    """A transport over an AXI DMA without scatter-gather (`pynq.lib.dma.DMA`)."""

    def __init__(self, dma: Any) -> None:
        self._dma = dma
        self._words = min(_WORDS, dma.buffer_max_size // 8)
        self._out = allocate(self._words, "u8", target=dma.device)
        self._in = allocate(self._words, "u4", target=dma.device)

    def exchange(self, words: Words) -> Answers:
        """Send the words, the last one with TLAST, and return the answers."""
        chunks = (words[k : k + self._words] for k in range(0, len(words), self._words))
        return np.concatenate([np.empty(0, np.uint32), *map(self._exchange, chunks)])

    def _exchange(self, words: Words) -> Answers:
        count = int(packets.answered(words).sum())
        self._out[: len(words)] = words
        if count:  # first: the core stops while nobody accepts its answers
            self._dma.recvchannel.transfer(self._in, nbytes=4 * count)
        self._dma.sendchannel.transfer(self._out, nbytes=8 * len(words))
        self._wait(self._dma.sendchannel, "accept all words")
        if count:
            self._wait(self._dma.recvchannel, "send all answers")
            if self._dma.recvchannel.transferred != 4 * count:
                got = self._dma.recvchannel.transferred // 4
                raise OnladError(f"the core ended its answers after {got} of {count}")
        return np.array(self._in[:count])

    @staticmethod
    def _wait(channel: Any, what: str) -> None:
        # The channel's own wait has no end when the core is stuck.
        end = time.monotonic() + _PATIENCE
        while not (channel.idle or channel.error):
            if time.monotonic() > end:
                raise OnladError(f"the core did not {what} within {_PATIENCE:.0f} s")
        channel.wait()


class Onlad(Device, DefaultHierarchy):
    """The hierarchy `onlad` of an overlay, which holds the core and its DMA, as a `Device`."""

    def __init__(self, description: dict[str, Any]) -> None:
        DefaultHierarchy.__init__(self, description)
        name = next(k for k, ip in description["ip"].items() if _is_dma(ip))
        Device.__init__(self, Dma(getattr(self, name)))

    @staticmethod
    def checkhierarchy(description: dict[str, Any]) -> bool:
        """Return whether a hierarchy is one of ours: by its name, and by the DMA in it."""
        ours = str(description["fullpath"]).rpartition("/")[2] == "onlad"
        return ours and any(map(_is_dma, description["ip"].values()))


def _is_dma(ip: dict[str, Any]) -> bool:
    return str(ip["type"]).startswith(_DMA)
