"""The gateware, in Amaranth; `onlad.hardware.model` is its counterpart on integers."""
