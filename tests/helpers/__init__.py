"""What several test files share: models, ports, files, results, and the tools that look at what is printed."""
