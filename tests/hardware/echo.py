"""A component with the core's ports that answers each request with the request's value."""

from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

PORTS = {
    "s_axis_tdata": In(64),
    "s_axis_tvalid": In(1),
    "s_axis_tready": Out(1),
    "s_axis_tlast": In(1),
    "m_axis_tdata": Out(32),
    "m_axis_tvalid": Out(1),
    "m_axis_tready": In(1),
    "m_axis_tlast": Out(1),
}


class Echo(wiring.Component):
    """Ready for the next word when its answer is taken; `fault` breaks a rule of the stream."""

    def __init__(self, fault=None):
        super().__init__(PORTS)
        self.fault = fault

    def elaborate(self, platform):
        m = Module()
        word = self.s_axis_tdata
        free = ~self.m_axis_tvalid | self.m_axis_tready
        m.d.comb += self.s_axis_tready.eq(free)
        if self.fault == "withdraws":
            m.d.sync += self.m_axis_tvalid.eq(0)
        if self.fault == "changes":
            m.d.sync += self.m_axis_tdata.eq(self.m_axis_tdata + 1)
        with m.If(free):
            m.d.sync += self.m_axis_tvalid.eq(0)
            with m.If(self.s_axis_tvalid & ((word[62:] == 0) | word[60])):
                m.d.sync += [
                    self.m_axis_tvalid.eq(self.fault != "deaf"),
                    self.m_axis_tdata.eq(word[:32]),
                    self.m_axis_tlast.eq(self.s_axis_tlast),
                ]
        return m
