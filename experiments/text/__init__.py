"""Sentiment classification on features of a language model (paper, section 5.3)."""
