"""The networks of the experiments, one file each."""
