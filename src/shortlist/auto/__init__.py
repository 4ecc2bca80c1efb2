"""Fit without choosing: model selection, cutoff selection, refit."""
