"""Reports: the same result in the terminal, and later in other formats; one file a format."""
