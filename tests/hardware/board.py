"""A PYNQ board without a board: PYNQ's own classes on registers and memory that are modelled here.

The model is of what the driver can see: the registers of an AXI DMA without scatter-gather (Xilinx
PG021), a memory that the DMA sees only after a flush and the processor only after an invalidation,
and a core that stops when nobody takes its answers.
"""

from types import SimpleNamespace

import numpy as np
from pynq.buffer import PynqBuffer
from pynq.pl_server.device import Device as PynqDevice

from onlad.hardware import packets

BASE = 0x4040_0000
MM2S, S2MM = 0x00, 0x30  # the two channels' registers
CONTROL, STATUS, ADDRESS, LENGTH = 0x00, 0x04, 0x18, 0x28
HALTED, IDLE = 1, 2


class Board(PynqDevice):
    """A device with one AXI DMA, and a transport of ours as the core behind it."""

    def __init__(self, core, length_width=26):
        super().__init__("board")
        self.core = core
        self.length_width = length_width
        self.capabilities = {"REGISTER_RW": True}
        self.memory = {}  # physical address: bytes, as the DMA sees them
        self.registers = {MM2S + STATUS: HALTED, S2MM + STATUS: HALTED}
        self.pending = None  # answers that nobody has taken yet
        self.next_address = 0x1000_0000
        self.timestamp = self.bitfile_name = None
        self.flushed = self.invalidated = 0

    # What PYNQ asks of a device ------------------------------------------------------------

    def has_capability(self, name):
        return self.capabilities.get(name, False)

    def get_bitfile_metadata(self, bitfile_name, partial=False):
        parameters = {
            "c_include_sg": "0", "c_sg_length_width": str(self.length_width),
            "c_include_mm2s": "1", "c_include_s2mm": "1",
            "c_m_axi_mm2s_data_width": "64", "c_m_axi_s2mm_data_width": "32",
        }  # fmt: skip
        dma = {
            "fullpath": "onlad/dma", "type": "xilinx.com:ip:axi_dma:7.1", "phys_addr": BASE,
            "addr_range": 0x10000, "parameters": parameters, "interrupts": {}, "gpio": {},
            "state": None,
        }  # fmt: skip
        empty = {"hierarchies": {}, "interrupts": {}, "gpio": {}, "memories": {}}
        return SimpleNamespace(
            ip_dict={"onlad/dma": dma},
            hierarchy_dict={"onlad": {"ip": {"dma": dma}, "fullpath": "onlad", **empty}},
            gpio_dict={}, interrupt_controllers={}, interrupt_pins={}, mem_dict={},
            clock_dict={}, systemgraph=None,
        )  # fmt: skip

    def download(self, bitstream, parser):
        self.bitfile_name, self.timestamp = bitstream.bitfile_name, bitstream.timestamp

    def allocate(self, shape, dtype, **kwargs):
        address = self.next_address
        buffer = PynqBuffer(shape, dtype, device=self, device_address=address, coherent=False)
        buffer[:] = 0
        self.memory[address] = bytearray(buffer.nbytes)
        self.next_address += (buffer.nbytes + 0xFFF) & ~0xFFF
        buffers = self.__dict__.setdefault("buffers", {})
        buffers[buffer.virtual_address] = (address, buffer)
        return buffer

    def flush(self, bo, offset, virtual_address, nbytes):
        address, buffer = self.buffers[virtual_address]
        self.memory[address][:] = buffer.tobytes()
        self.flushed += 1

    def invalidate(self, bo, offset, virtual_address, nbytes):
        address, buffer = self.buffers[virtual_address]
        buffer[:] = np.frombuffer(bytes(self.memory[address]), buffer.dtype)
        self.invalidated += 1

    # The registers of the DMA -----------------------------------------------------------------

    def read_registers(self, address, length):
        value = self.registers.get(address - BASE, 0)
        return value.to_bytes(length, "little")

    def write_registers(self, address, data):
        offset, value = address - BASE, int.from_bytes(data, "little")
        channel = S2MM if offset >= S2MM else MM2S
        if offset - channel == CONTROL:
            self.registers[channel + STATUS] = 0 if value & 1 else HALTED
        elif offset - channel == LENGTH:
            assert 0 < value < 1 << self.length_width, "the DMA would hang"
            self.registers[offset] = value
            self.registers[channel + STATUS] &= ~IDLE
            if channel == MM2S:
                self.send(value)
            self.drain()
        else:
            self.registers[offset] = value

    def send(self, nbytes):
        assert self.pending is None, "a transfer before the last one ended"
        words = np.frombuffer(self.memory[self.registers[MM2S + ADDRESS]], "<u8", nbytes // 8)
        self.pending = self.core.exchange(words.copy())
        self.ends = bool(packets.answered(words[-1:])[0])  # does the last answer carry TLAST?

    def drain(self):
        """Move answers, as far as both ends allow, and let go of what is done."""
        if self.pending is None:
            return
        if len(self.pending):
            if self.registers.get(S2MM + LENGTH, 0) == 0 or self.idle(S2MM):
                return  # nobody takes the answers, so the core stands, and so does the sender
            room, data = self.registers[S2MM + LENGTH], self.pending.astype("<u4").tobytes()
            assert len(data) <= room, "more answers than room"
            if len(data) < room and not self.ends:
                return  # neither full nor TLAST
            self.memory[self.registers[S2MM + ADDRESS]][: len(data)] = data
            self.registers[S2MM + LENGTH] = len(data)
            self.registers[S2MM + STATUS] |= IDLE
        self.registers[MM2S + STATUS] |= IDLE
        self.pending = None

    def idle(self, channel):
        return bool(self.registers[channel + STATUS] & IDLE)
