"""TwoStage: candidates from several sources, ranked by gradient-boosted trees."""
