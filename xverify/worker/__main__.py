"""``python -m xverify.worker``: what the parent starts."""

from .session import main

main()
