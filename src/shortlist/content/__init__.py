"""Content of items as sparse features: words, categories, tags, numbers, dates and vectors."""
