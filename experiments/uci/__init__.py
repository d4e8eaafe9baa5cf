"""The paper's tables of regression on six UCI data sets."""
