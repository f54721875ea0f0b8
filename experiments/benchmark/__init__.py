"""How well `Monitor` detects: labelled streams, simulated machines, normal data, hard cases."""
