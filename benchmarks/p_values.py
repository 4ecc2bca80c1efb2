"""How often the test of `compare` rejects a true null hypothesis, and finds a difference, with few users.

    python benchmarks/p_values.py   # about a minute

1,000 samples of values with mean 0, and with a mean of half a standard deviation, are tested at a level of
5% in three ways: by the bootstrap of means, by that of t statistics on both sides together, and by
`paired_test`, which takes the larger p-value of that and of twice the observed side for up to 100 values.
"""

import numpy as np
from machine import describe, save_results

from shortlist.evaluation import paired_test
from shortlist.evaluation.significance import bootstrap_means

SIZES, N_SAMPLES, RESAMPLES, LEVEL, SHIFT = (20, 40, 80), 1_000, 400, 0.05, 0.5
KINDS = {  # (draw n values, their mean, their standard deviation)
    "normal": (lambda rng, n: rng.normal(size=n), 0.0, 1.0),
    "heavy tails (t, 3 degrees)": (lambda rng, n: rng.standard_t(3, n), 0.0, 3**0.5),
    "skewed (log-normal)": (
        lambda rng, n: rng.lognormal(0, 1, n),
        np.exp(0.5),
        np.sqrt((np.e - 1) * np.e),
    ),
    "mostly 0, else skewed": (
        lambda rng, n: np.where(rng.random(n) < 0.3, rng.beta(1, 4, n) - 0.2, 0.0),
        0.0,
        np.sqrt(0.3 * 0.16 / 6),
    ),
}


def share_as_far(distance, observed):
    """The p-value of a statistic whose bootstrap samples have these distances."""
    return (1 + (np.abs(distance) >= observed).sum()) / (1 + RESAMPLES)


def measure(kind: str, size: int, shift: float) -> dict[str, float]:
    """Share of rejected samples of this kind and size, whose mean is so many standard deviations."""
    draw, mean, deviation = KINDS[kind]
    rng, rejected = np.random.default_rng(0), np.zeros(3)
    for seed in range(N_SAMPLES):
        change = draw(rng, size) - mean + shift * deviation
        means = bootstrap_means(change, RESAMPLES, seed)
        spread = np.sqrt(np.maximum(bootstrap_means(change**2, RESAMPLES, seed) - means**2, 1e-24))
        distance = means - change.mean()
        p = (
            share_as_far(distance, abs(change.mean())),
            share_as_far(distance / spread, abs(change.mean()) / max(change.std(), 1e-12)),
            paired_test(change, np.zeros(size), resamples=RESAMPLES, seed=seed).p_bootstrap,
        )
        rejected += np.array(p) <= LEVEL
    names = ("means", "t_statistics", "paired_test")
    return {"values": kind, "users": size, "shift": shift} | dict(
        zip(names, (rejected / N_SAMPLES).tolist(), strict=True)
    )


def main() -> None:
    """Measure all kinds and sizes and store the results."""
    rows = [measure(kind, size, shift) for shift in (0.0, SHIFT) for kind in KINDS for size in SIZES]
    for row in rows:
        shares = ", ".join(f"{name} {row[name]:.1%}" for name in ("means", "t_statistics", "paired_test"))
        print(f"{row['values']}, {row['users']} users, shift {row['shift']}: {shares}")
    save_results("p_values", {"machine": describe(), "level": LEVEL, "rows": rows})


if __name__ == "__main__":
    main()
