"""The paper's experiments and their baselines; `python -m experiments` lists them."""
