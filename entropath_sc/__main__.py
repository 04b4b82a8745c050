"""`python -m entropath_sc` is `entropath-sc`."""

import sys

from .cli import main

sys.exit(main())
