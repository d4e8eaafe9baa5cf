"""Contextual bandits: the paper's wheel bandit."""
