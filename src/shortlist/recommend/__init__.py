"""From scores to lists: one request path for lists in memory, files, explanations and the command line."""
