"""Estimators and their files, threads, ragged arrays and generalized linear models."""
