"""`onlad` as a detector of other libraries, one module a host. Importing this imports no host."""
