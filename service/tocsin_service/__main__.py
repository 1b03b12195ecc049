"""``python -m tocsin_service`` is the ``tocsin`` command."""

import sys

from tocsin_service.cli import main

sys.exit(main())
