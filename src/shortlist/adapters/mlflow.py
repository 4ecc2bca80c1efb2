"""MLflow: the file of a cutoff as a `pyfunc` model, without pickle.

Save it with `mlflow.pyfunc.save_model(path, loader_module="shortlist.adapters.mlflow", data_path=file)`.
"""

from typing import Any

from shortlist.adapters import prepare_cutoff


class CutModel:
    """Rows of scores in, one per list; the positions to show out, best first."""

    def __init__(self, path: str) -> None:
        self.show = prepare_cutoff(path)

    def predict(self, model_input: Any, params: dict[str, Any] | None = None) -> list[list[int]]:
        """Return the positions to show for each row of scores."""
        rows = model_input.to_numpy() if hasattr(model_input, "to_numpy") else model_input
        return [self.show(row).tolist() for row in rows]


def _load_pyfunc(path: str) -> CutModel:
    """Load the model; MLflow calls this function."""
    return CutModel(path)
