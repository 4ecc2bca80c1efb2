"""Models of the content of items."""
