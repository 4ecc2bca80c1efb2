"""Models: one contract, one joint engine, the paper's names."""

from shortlist.models.base import Recommender, load_model
from shortlist.models.counting import PersonalFrequency, Popularity
from shortlist.models.hrm import DKHRM, HRM
from shortlist.models.linear import Linear
from shortlist.models.mf import BPRMF, CRRMF, DKBPRMF, LogMF
from shortlist.models.neighbours import Neighbours
from shortlist.models.outside import OutsideScores, from_implicit
from shortlist.models.two_stage import TwoStage

__all__ = [
    "BPRMF",
    "CRRMF",
    "DKBPRMF",
    "DKHRM",
    "HRM",
    "Linear",
    "LogMF",
    "Neighbours",
    "OutsideScores",
    "PersonalFrequency",
    "Popularity",
    "Recommender",
    "TwoStage",
    "from_implicit",
    "load_model",
]
