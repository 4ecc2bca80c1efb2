"""EpochWatch: end the training of a model that stays far behind the best one."""

from shortlist.errors import TrainingError
from shortlist.models.factorization.training import Progress

FAR = 0.7  # share of the best model's F1 that a model must be able to reach
MIN_EPOCHS = 10  # that every model is trained
RECENT = 5  # epochs whose growth of the F1 is continued
AHEAD = 20  # epochs that it is continued for


class EpochWatch:
    """Raises TrainingError where the validation F1 would stay below a share of the best model's.

    The F1 is continued along its growth over the last epochs; F1 curves flatten, so this is generous. The F1
    of an epoch is that of a sample of the validation users at N up to 20, hence the distance to the best.
    """

    def __init__(self, leader_f1: float) -> None:
        self.goal, self.leader_f1 = FAR * leader_f1, leader_f1
        self.best: list[float] = []  # highest F1 until each epoch

    def __call__(self, epoch: Progress) -> None:
        """Look at the F1 after an epoch."""
        if epoch.score is None:
            return
        self.best.append(max(epoch.score, self.best[-1] if self.best else 0.0))
        if len(self.best) < MIN_EPOCHS:
            return
        growth = (self.best[-1] - self.best[-1 - RECENT]) / RECENT
        if self.best[-1] + AHEAD * growth < self.goal:
            raise TrainingError(
                f"training ended after epoch {epoch.epoch}: F1 {self.best[-1]:.4f}, far below the best "
                f"model's {self.leader_f1:.4f}"
            )
