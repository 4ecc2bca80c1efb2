"""The HTTP service: lists out, events in, models swapped without a restart."""
