"""`python -m lucid`."""

import sys

from lucid.cli import main

sys.exit(main())
