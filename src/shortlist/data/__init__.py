"""The data room: ids, interactions, ranked lists, readers, filters, datasets."""
