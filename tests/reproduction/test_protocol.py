"""What is fixed: all parameters of the models, and the figures that the paper prints."""

import pytest

import shortlist as sl
from reproduction.protocol import MODELS, PAPER, PARAMETERS, SETTINGS, SPACES, printed_cells

OF_THE_WORKLOAD = {"n_factors", "bias", "n_epochs", "seed"}


@pytest.mark.parametrize(("model", "loss"), SPACES)
def test_no_parameter_is_left_to_a_default(model, loss):
    """So that another default of the library changes no figure."""
    given = PARAMETERS[model].keys() | SETTINGS.get(model, {}).keys() | SPACES[model, loss].keys()
    assert given | OF_THE_WORKLOAD == getattr(sl, model)().get_params().keys()


def test_cells_of_the_paper():
    assert printed_cells("ml-100k", "DKHRM") == {"f1": 0.035, "cover_ratio": 0.68, "ndcg": 0.12}
    assert printed_cells("ta-feng", "BPRMF") == {"f1": 0.033, "cover_ratio": 1.0, "ndcg": 0.075}
    assert printed_cells("sample", "HRM") is None
    assert {len(cells) for table in PAPER.values() for cells in table.values()} == {len(MODELS)}
