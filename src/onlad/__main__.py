"""`python -m onlad` is the command `onlad`."""

import sys

from onlad.cli import main

sys.exit(main())
