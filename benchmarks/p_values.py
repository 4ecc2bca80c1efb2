"""How often the test of `compare` rejects a true null hypothesis, with few users and skewed values.

    python benchmarks/p_values.py   # about half a minute

1,000 samples of log-normal values with mean 0 are tested at a level of 5%, by the bootstrap of means and by
that of t statistics, which `paired_test` uses for up to 100 values.
"""

import numpy as np
from machine import describe, save_results

from shortlist.evaluation import paired_test
from shortlist.evaluation.significance import bootstrap_means

SIZES, N_SAMPLES, RESAMPLES, LEVEL = (40, 80), 1_000, 400, 0.05


def measure(size: int) -> dict[str, float]:
    """Share of rejected samples of this size."""
    rng, means_reject, t_rejects = np.random.default_rng(0), 0, 0
    for seed in range(N_SAMPLES):
        change = rng.lognormal(0, 1, size) - np.exp(0.5)
        means = bootstrap_means(change, RESAMPLES, seed)
        as_far = (np.abs(means - change.mean()) >= abs(change.mean())).sum()
        means_reject += (1 + as_far) / (1 + RESAMPLES) <= LEVEL
        test = paired_test(change, np.zeros(size), resamples=RESAMPLES, seed=seed)
        t_rejects += test.p_bootstrap <= LEVEL
    return {"users": size, "means": means_reject / N_SAMPLES, "t_statistics": t_rejects / N_SAMPLES}


def main() -> None:
    """Measure all sizes and store the results."""
    rows = [measure(size) for size in SIZES]
    for row in rows:
        print(f"{row['users']} users: means {row['means']:.1%}, t statistics {row['t_statistics']:.1%}")
    save_results("p_values", {"machine": describe(), "level": LEVEL, "rows": rows})


if __name__ == "__main__":
    main()
