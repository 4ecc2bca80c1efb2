"""Beyond one machine: training, batch recommendation and trials on a Ray cluster."""
