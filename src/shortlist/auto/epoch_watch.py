"""EpochWatch: end the training of a model that stays far behind the best one."""

from math import log2

from shortlist.errors import TrainingError
from shortlist.models.factorization.training import Progress

FAR = 0.85  # share of the best model's F1 that a model must be able to reach
MIN_EPOCHS = 20  # that every model is trained: factors may first take ten to become better than popularity


def expected_f1(best: list[float], n_epochs: int) -> float:
    """What the highest F1 `best` (until each epoch so far) may become after all `n_epochs`.

    Each further doubling of the epochs is expected to add what the last one added. Learning curves flatten,
    so this is generous: benchmarks/ending_early.py compares it with what models reached.
    """
    now = len(best)
    return best[-1] + (best[-1] - best[now // 2 - 1]) * log2(n_epochs / now)


class EpochWatch:
    """Raises TrainingError where the validation F1 is expected to stay far below the best model's.

    The F1 of an epoch is that of a sample of the validation users at N up to 20, hence the distance.
    """

    def __init__(self, leader_f1: float) -> None:
        self.leader_f1 = leader_f1
        self.best: list[float] = []  # highest F1 until each epoch

    def __call__(self, epoch: Progress) -> None:
        """Look at the F1 after an epoch."""
        if epoch.score is None:
            return
        self.best.append(max(epoch.score, self.best[-1] if self.best else 0.0))
        if len(self.best) < MIN_EPOCHS:
            return
        if expected_f1(self.best, epoch.n_epochs) < FAR * self.leader_f1:
            raise TrainingError(
                f"training ended after epoch {epoch.epoch}: F1 {self.best[-1]:.4f}, far below the best "
                f"model so far, {self.leader_f1:.4f}"
            )
