"""What the site of documentation needs beside the pages; mkdocs.yml names these modules."""
