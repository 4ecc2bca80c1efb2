"""The public names: `from module import name as name`, one a line. `make fix` adds new models."""

from shortlist import cutoff as cutoff
from shortlist import errors as errors
from shortlist import spark as spark
from shortlist import split as split
from shortlist.auto.cut import cut as cut
from shortlist.auto.cutoff_choice import choose_cutoff as choose_cutoff
from shortlist.auto.cutoff_choice import default_cutoffs as default_cutoffs
from shortlist.auto.fit import fit as fit
from shortlist.core.threads import set_threads as set_threads
from shortlist.cutoff.allocation import Allocation as Allocation
from shortlist.cutoff.allocation import allocate as allocate
from shortlist.data.datasets import load_dataset as load_dataset
from shortlist.data.files import read_interactions as read_interactions
from shortlist.data.ids import IdMap as IdMap
from shortlist.data.interactions import Interactions as Interactions
from shortlist.data.items import Items as Items
from shortlist.data.items import read_items as read_items
from shortlist.data.lists import RankedLists as RankedLists
from shortlist.data.profile import check_data as check_data
from shortlist.evaluation.evaluate import compare as compare
from shortlist.evaluation.evaluate import evaluate as evaluate
from shortlist.evaluation.evaluate import evaluate_alerts as evaluate_alerts
from shortlist.evaluation.experiment import evaluate_experiment as evaluate_experiment
from shortlist.evaluation.experiment import plan_experiment as plan_experiment
from shortlist.models.als import ALS as ALS
from shortlist.models.base import load_model as load_model
from shortlist.models.content import ContentProfile as ContentProfile
from shortlist.models.counting import PersonalFrequency as PersonalFrequency
from shortlist.models.counting import Popularity as Popularity
from shortlist.models.ease import EASE as EASE
from shortlist.models.factorization.hrm import DKHRM as DKHRM
from shortlist.models.factorization.hrm import HRM as HRM
from shortlist.models.factorization.mf import BPRMF as BPRMF
from shortlist.models.factorization.mf import CRRMF as CRRMF
from shortlist.models.factorization.mf import DKBPRMF as DKBPRMF
from shortlist.models.factorization.mf import LogMF as LogMF
from shortlist.models.gfcf import GFCF as GFCF
from shortlist.models.matrix_blend import MatrixBlend as MatrixBlend
from shortlist.models.precomputed import PrecomputedScores as PrecomputedScores
from shortlist.models.precomputed import from_implicit as from_implicit
from shortlist.models.strict_time import evaluate_over_time as evaluate_over_time
from shortlist.models.tifuknn import TIFUKNN as TIFUKNN
from shortlist.models.two_stage.two_stage import TwoStage as TwoStage

MODEL_MODULES: dict[str, str]
__version__: str
