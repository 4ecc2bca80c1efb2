"""Ids, interactions, ranked lists, readers, filters and datasets."""
