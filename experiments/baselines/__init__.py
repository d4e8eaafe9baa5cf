"""The methods of the tables, one file each: knobs, a model with two calls, how it is trained."""
