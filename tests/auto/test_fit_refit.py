"""refit: the same settings on more data, refused if they are worse on the latest day."""

import math

import numpy as np
import polars as pl
import pytest

import shortlist as sl
from shortlist.auto.refit import refit
from shortlist.data.items import Items
from shortlist.errors import ConfigError
from shortlist.evaluation import paired_test

DAY = 86_400_000_000


def rows(days, item, n_users=20):
    """Users who buy one item every day."""
    return pl.DataFrame(
        {
            "user_id": [f"u{user}" for day in days for user in range(n_users)],
            "item_id": [item(day, user) for day in days for user in range(n_users)],
            "timestamp": [day * DAY for day in days for _ in range(n_users)],
        }
    ).with_columns(pl.col("timestamp").cast(pl.Datetime("us")))


def own_item(day, user):
    return f"i{user % 5}"


def fitted(days, item=own_item):
    data = sl.Interactions.from_frame(rows(days, item))
    return sl.PersonalFrequency().fit(data).set_cutoff(sl.cutoff.FixedN(N=1))


def test_new_model_learns_from_history_and_events():
    old = fitted(range(10))
    result = refit(old, sl.Interactions.from_frame(rows(range(10, 13), own_item)))
    assert result.model is not None
    assert result.model.history_.n_rows == 13 * 20
    assert result.n_lists == result.n_users == 20  # one list per user on the latest day
    assert result.old_f1 == result.new_f1 == 1.0
    assert result.users_needed == 16
    assert "20 users, with whom a loss of 28% of the F1 would probably have shown" in result.reason
    assert isinstance(result.model, sl.PersonalFrequency)


def test_old_model_is_not_changed():
    old = fitted(range(10))
    refit(old, sl.Interactions.from_frame(rows(range(10, 13), own_item)))
    assert old.history_.n_rows == 10 * 20


def test_a_model_of_content_needs_all_items_again():
    data = sl.Interactions.from_frame(rows(range(10), own_item, 40))
    table = pl.DataFrame({"item_id": [f"i{n}" for n in range(6)], "topic": ["tea", "soap"] * 3})
    old = sl.ContentProfile().fit(data, items=table[:5]).set_cutoff(sl.cutoff.FixedN(N=2))
    events = sl.Interactions.from_frame(rows(range(10, 13), own_item, 40))
    with pytest.raises(ConfigError, match="which a refit needs again") as error:
        refit(old, events)
    assert error.value.parameter == "items"
    new = refit(old, events, items=Items.of(table)).model
    assert new.history_.n_rows == 13 * 40
    assert "i5" in new.items_, "nobody bought it, so it is known from the table alone"


def test_worse_model_is_refused(monkeypatch):
    old = fitted(range(10))
    events = sl.Interactions.from_frame(rows(range(10, 13), own_item))
    worse = sl.Popularity().fit(old.history_).set_cutoff(sl.cutoff.FixedN(N=1))
    monkeypatch.setattr("shortlist.auto.refit._fit_again", lambda *_: worse)
    result = refit(old, events)
    assert result.model is None
    assert result.new_f1 < result.old_f1
    assert result.reason == "the new model is worse on the latest days"


def test_without_new_events_nothing_is_compared():
    result = refit(fitted(range(10)), None)
    assert result.model is not None
    assert np.isnan(result.new_f1)
    assert result.n_lists == 0


def test_settings_stay():
    data = sl.Interactions.from_frame(rows(range(10), own_item))
    old = sl.PersonalFrequency(decay=0.7).fit(data).set_cutoff(sl.cutoff.FixedN(N=2))
    model = refit(old, sl.Interactions.from_frame(rows(range(10, 12), own_item))).model
    assert model.decay == 0.7
    assert model.cutoff_.N == 2


def test_progress_names_the_steps():
    lines = []
    refit(fitted(range(10)), sl.Interactions.from_frame(rows(range(10, 12), own_item)), progress=lines.append)
    assert "checking on the latest days" in lines
    assert "fitting on everything" in lines


@pytest.mark.parametrize(
    ("new", "says"),
    [
        (rows([10], own_item).head(1), "too few users to compare: 1, and about 16 are needed"),
        (rows([10], lambda *_: "new"), "no list of 20 users had a success of the model in service"),
        (rows([9], lambda *_: "i1"), "no event is later than those of the old model"),
    ],
)
def test_too_few_users_activate_nothing(new, says):
    result = refit(fitted(range(10)), sl.Interactions.from_frame(new))
    assert result.model is None
    assert says in result.reason


def test_few_users_a_day_are_compared_on_several_days():
    """Five lists a day: half of the new days are held out, a week at most."""
    new = rows(range(10, 50), own_item).filter(pl.col("user_id").is_in([f"u{n}" for n in range(5)]))
    assert refit(fitted(range(10)), sl.Interactions.from_frame(new)).n_lists == 5 * 7
    assert refit(fitted(range(10)), sl.Interactions.from_frame(new.head(5 * 6))).n_lists == 5 * 3


def test_the_loss_that_is_named_is_found_four_times_of_five():
    """Simulated: users lose their F1 with the probability that is called the smallest loss."""
    from shortlist.auto.refit import LARGEST_LOSS, LEVEL, NOTICED

    rng, n_found = np.random.default_rng(0), 0
    f1 = np.where(rng.random(100_000) < 0.2, rng.uniform(0.2, 1, 100_000), 0)
    needed = math.ceil(NOTICED * (f1**2).mean() / f1.mean() ** 2 / LARGEST_LOSS - NOTICED)
    for _ in range(200):
        old = rng.choice(f1, needed)
        new = np.where(rng.random(needed) < LARGEST_LOSS, 0, old)
        n_found += paired_test(new, old, resamples=1_000).p_bootstrap < LEVEL
    assert n_found / 200 > 0.75


def guaranteed():
    """A model with a guarantee."""
    data = sl.load_dataset("sample")
    guarantee = sl.cutoff.Guarantee(min_precision=0.08, confidence=0.9)
    return sl.fit(data, models="PersonalFrequency", budget="quick", cutoff=guarantee)


def later_events(model, n=1_500):
    """Events on the two days after the history."""
    end = int(model.history_.time.max()) // DAY + 1
    known = model.history_.to_frame().head(n)
    times = pl.Series("timestamp", [(end + number % 2) * DAY for number in range(known.height)])
    return sl.Interactions.from_frame(known.with_columns(times.cast(pl.Datetime("us"))))


def test_a_guarantee_is_tested_anew_on_the_model_that_is_returned():
    old = guaranteed()
    new = refit(old, later_events(old)).model
    assert new is not None
    assert new.cutoff_.min_precision == old.cutoff_.min_precision
    assert new.cutoff_.source_ == new.fingerprint_ != old.fingerprint_
    assert new.history_.n_rows == old.history_.n_rows + later_events(old).n_rows


def test_a_model_that_can_guarantee_nothing_is_refused():
    old = guaranteed()
    old.cutoff_.min_precision = 0.999
    result = refit(old, later_events(old))
    assert result.model is None
    assert result.reason.startswith("the guarantee cannot be given again")
