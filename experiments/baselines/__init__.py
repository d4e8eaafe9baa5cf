"""Methods, one file each, for any backbone and likelihood: settings, a model, how it is trained."""
