"""Contextual bandits: agents that choose arms by the uncertainty of a last layer."""

from .agent import Agent
from .policies import UCB, Greedy, Policy, Thompson
from .retraining import Retraining

__all__ = ["UCB", "Agent", "Greedy", "Policy", "Retraining", "Thompson"]
