import sys

from onlad.cli import main

sys.exit(main())
