"""`onlad demo`: a pump with known faults, watched live."""
