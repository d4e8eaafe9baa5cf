"""Image classification and out-of-distribution detection (paper, section 5.2)."""
