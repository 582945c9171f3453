"""Entry point of ``python -m xverify.worker``, which the parent process starts."""

from ..messages import limits


def main() -> None:
    """Limit the memory, then import what answers requests: what imports need counts, too."""
    limits.apply()
    from .session import main

    main()


main()
