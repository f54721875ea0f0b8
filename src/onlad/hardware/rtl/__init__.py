"""The gateware, in Amaranth. Each room has a twin on integers in `onlad.hardware.model`."""
