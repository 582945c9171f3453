"""Entry point of ``python -m xverify.worker``, which the parent process starts."""

from .session import main

main()
