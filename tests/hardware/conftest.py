"""Leave out the programs that run in the environment of PYNQ."""

collect_ignore = ["board.py", "on_pynq.py"]
