"""Networks from inputs to features, one file each."""
