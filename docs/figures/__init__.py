"""Programs that make the figures and numbers of the pages in docs/."""
