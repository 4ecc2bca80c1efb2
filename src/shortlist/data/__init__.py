"""Ids, interactions, ranked lists, readers and datasets."""
