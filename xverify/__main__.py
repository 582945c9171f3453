import sys

from .commands._main import main

sys.exit(main())
