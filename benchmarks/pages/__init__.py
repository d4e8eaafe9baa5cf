"""The generated tables of README.md and docs/, one file per page."""
