"""Models: one contract, one joint engine, the paper's names."""
