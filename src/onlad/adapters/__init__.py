"""`onlad` as a detector of other libraries, one module per host. Importing this imports no host.

The constructors are alike by design: each host wants its parameters written out.
"""
