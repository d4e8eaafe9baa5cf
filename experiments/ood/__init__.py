"""Out-of-distribution scores on features of pretrained and of trained networks."""
