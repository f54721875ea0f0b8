"""The edge service: many streams, each a source and a monitor, that survive what a machine does."""
