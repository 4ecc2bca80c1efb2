"""Wrong arguments of a request: one sentence with the rule, what was received and what to do."""

import datetime as dt

import numpy as np
import polars as pl
import pytest

import shortlist as sl
from shortlist.errors import ConfigError, DataError, UnknownIdError
from tests.models.cases import checkerboard, fitted

N_USERS = 30
LISTS = {"u00": ["i00"], "u01": ["i01"]}


def refuse(kind, match, **request):
    with pytest.raises(kind, match=match) as found:
        fitted("PersonalFrequency").recommend(**{"users": ["u00"], "N": 2} | request)
    assert len(str(found.value)) <= 300


@pytest.mark.parametrize("N", [float("nan"), float("inf"), "5", True, 0, -1, 2.5, np.array([3]), [3], 1 + 0j])
def test_length_must_be_a_whole_number(N):
    refuse(ConfigError, "N must be a whole number of at least 1, got .*; leave it out for the default", N=N)


def test_lengths_beyond_all_items_are_no_limit():
    model = fitted("Popularity")
    lists = model.recommend(["u00"], N=10**30, filter_seen=False)
    assert lists.lengths.tolist() == [20]
    assert model.recommend(["u00"], N=3, max_items=10**30).lengths.tolist() == [3]


def test_min_items_is_not_optional():
    refuse(ConfigError, "min_items must be a whole number of at least 0, got None", min_items=None)
    refuse(ConfigError, "min_items must not exceed N and max_items, got 5 and 2", min_items=5, max_items=3)


@pytest.mark.parametrize(
    ("cutoff", "advice"),
    [
        ("expected_f1", r"got 'expected_f1'; pass an object, such as sl.cutoff.ExpectedF1\(\).fit"),
        ("threshold", r"got 'threshold'; .*sl.cutoff.Threshold\(\).fit"),
        (sl.cutoff.Guarantee, r"got the class Guarantee; .*sl.cutoff.Guarantee\(\).fit"),
        (sl.BPRMF, "got the class BPRMF"),
        (None, "got None"),
        (np.array(["auto"]), "got array"),
    ],
)
def test_cutoff_must_be_an_object(cutoff, advice):
    refuse(
        ConfigError, f"cutoff must be 'auto', 'boundary' or a fitted cutoff, {advice}", N=None, cutoff=cutoff
    )
    with pytest.raises(ConfigError, match="cutoff must be None or a fitted cutoff"):
        sl.Popularity().fit(checkerboard()).set_cutoff(cutoff if cutoff is not None else "none")


def test_fit_names_the_cutoff_to_create():
    for cutoff in ("expected_f1", sl.cutoff.ExpectedF1, np.array([1])):
        with pytest.raises(ConfigError, match=r"an unfitted cutoff, got .*sl.cutoff.ExpectedF1\(\)"):
            sl.fit(checkerboard(), models="Popularity", cutoff=cutoff)


def test_length_and_cutoff_exclude_each_other():
    refuse(ConfigError, "got N=2 and FixedN.*; pass one of them", cutoff=sl.cutoff.FixedN(N=3))


MOMENTS = [
    np.datetime64("2024-01-01"),
    np.datetime64("2024-01", "M"),
    np.datetime64("2024-01-01T00:00:00", "s"),
    np.datetime64("2024-01-01", "ns"),
    dt.date(2024, 1, 1),
    dt.datetime(2024, 1, 1),
    dt.datetime(2024, 1, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=1))),
    "2024-01-01",
    1704067200,
    np.int64(1704067200),
    pl.Series([dt.date(2024, 1, 1)]),
    np.array(["2024-01-01"], "datetime64[s]"),
    [np.datetime64("2024-01-01", "h")],
]


@pytest.mark.parametrize("at", MOMENTS, ids=repr)
def test_times_of_every_type_mean_the_same(at):
    request = fitted("Popularity").build_request(["u00"], at=at)
    assert request.timestamps.tolist() == [1704067200_000_000]


def test_pandas_times_mean_the_same():
    pd = pytest.importorskip("pandas")
    for at in (pd.Timestamp("2024-01-01"), pd.Series([pd.Timestamp("2024-01-01")])):
        assert fitted("Popularity").build_request(["u00"], at=at).timestamps.tolist() == [1704067200_000_000]
    refuse(ConfigError, "got NaT", at=pd.NaT)


@pytest.mark.parametrize(
    "at",
    [
        "tomorrow", "", float("nan"), float("inf"), True, b"2024", {}, {"u00": "2024-01-01"}, [], [None],
        dt.timedelta(1), np.timedelta64(3, "D"), np.datetime64("NaT"), np.datetime64("NaT", "us"), 10**30,
        pl.DataFrame({"a": [1]}), np.array([[1, 2]]), object(), [1, "a"], [True],
    ],
    ids=lambda at: repr(at)[:20],
)  # fmt: skip
def test_other_values_are_no_times(at):
    refuse(
        ConfigError, "at must be a date, an ISO 8601 string or an epoch number.*write at='2024-05-01'", at=at
    )


@pytest.mark.parametrize(
    "users",
    [3.5, {"u00": 1}, b"u00", object(), pl.DataFrame({"u": ["u00"]}), np.array([["u00"]]), checkerboard()],
    ids=lambda users: type(users).__name__,
)
def test_users_must_be_ids(users):
    refuse(DataError, "users must be one user id or a list of them, got a", users=users)


def test_other_ids_are_refused():
    refuse(DataError, "ids must be strings or integers, all of one type, got int 3", users=["u00", 3])
    refuse(DataError, "users must be distinct, got 'u00' more than once", users=["u00", "u00"])
    assert len(fitted("Popularity").recommend([], N=2)) == 0


@pytest.mark.parametrize("name", ["candidates", "exclude"])
def test_item_filters_must_be_collections(name):
    pd = pytest.importorskip("pandas")
    for given in ("i00", b"i00", 3, np.array("i00"), {"u00": "i00"}, {"u00": {"i00": 1}}, [{"i00": 1}],
                  pl.DataFrame({"item_id": ["i00"]}), pd.DataFrame({"item_id": ["i00"]})):  # fmt: skip
        refuse(
            ConfigError,
            f"{name} must be a collection of item ids, got .*; put the ids in a list",
            **{name: given},
        )
    refuse(ConfigError, f"{name} must be a list of item ids or a list of lists", **{name: ["i00", ["i02"]]})
    nested = {name: {"u00": [["i00"]]}}
    refuse(UnknownIdError, f"{name}: item ids are strings, got a list, .* pass a string, such as", **nested)


def test_every_item_filter_shape_works():
    model = fitted("Popularity")
    for given in (["i00"], {"i00"}, np.array(["i00"]), pl.Series(["i00"]), {"u00": ["i00"]}, [["i00"]],
                  pl.Series([["i00"]]), (i for i in ["i00"])):  # fmt: skip
        lists = model.recommend(["u00"], N=2, candidates=given, filter_seen=False)
        assert lists["u00"].items == ["i00"]


@pytest.mark.parametrize(
    "fallback", ["pop", 3, ["i00"], sl.Popularity, lambda user: None, lambda user: "i00"]
)
def test_fallback_must_give_lists(fallback):
    refuse(ConfigError, "fallback must", users=["nobody"], fallback=fallback)


# ------------------------------------------------------------------ calls
@pytest.mark.parametrize(
    ("call", "wrong"),
    [
        (lambda: fitted("Popularity").recommend(["u00"], k=5), "k"),
        (lambda: fitted("Popularity").explain("u00", n=5), "n"),
        (lambda: sl.BPRMF(factors=3), "factors"),
        (lambda: sl.cutoff.Threshold(coverge=0.5), "coverge"),
        (lambda: sl.fit(checkerboard(), model="BPRMF"), "model"),
        (lambda: sl.evaluate(LISTS, checkerboard(), user=["u00"]), "user"),
    ],
)
def test_wrong_keywords_are_named(call, wrong):
    with pytest.raises(TypeError, match=f"unexpected keyword argument '{wrong}'"):
        call()


@pytest.mark.parametrize("name", ["k", "user_ids", "candidate"])
def test_wrong_keywords_of_methods_are_type_errors(name):
    for call in (fitted("Popularity").recommend, fitted("Popularity").explain):
        with pytest.raises(TypeError, match=f"unexpected keyword argument '{name}'"):
            call("u00", **{name: 5})


def test_parameters_have_names():
    with pytest.raises(TypeError, match="positional argument"):
        sl.BPRMF(32)


def test_set_params_names_a_similar_parameter():
    with pytest.raises(ConfigError, match="BPRMF has no parameter 'n_epoch'; did you mean 'n_epochs'"):
        sl.BPRMF().set_params(n_epoch=3)


def test_models_are_objects():
    with pytest.raises(TypeError, match="missing 1 required positional argument"):
        sl.BPRMF.fit(checkerboard())


def test_one_item_is_not_enough_to_choose_from():
    rows = [(user, "x", day) for user in "abcd" for day in range(3)]
    with pytest.raises(DataError, match="at least two items to choose a model and a cutoff, got 1"):
        sl.fit(sl.Interactions.from_tuples(rows))
