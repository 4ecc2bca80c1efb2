"""Models: one contract, one training engine, published names."""
