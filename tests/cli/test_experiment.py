"""`shortlist experiment`: plan, start, status and stop on the store of a service."""

import json

import numpy as np
import pytest

import shortlist as sl
from shortlist.cli import main
from shortlist.cli.experiment import parse_arm, parse_guardrail
from shortlist.errors import ConfigError

ARMS = ["--arm", "three:share=0.5,N=3", "--arm", "dynamic:share=0.5"]


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shop")
    split = sl.split.last_basket(sl.load_dataset("sample"))
    model = sl.PersonalFrequency().fit(split.train)
    lists = model.recommend(N=30, filter_seen=False)
    model.set_cutoff(sl.cutoff.ExpectedF1().fit(lists, split.valid))
    model.save(folder / "shop.shortlist")
    split.test.to_frame().write_csv(folder / "held.csv")
    return folder


def run(shop, action, *more):
    return main(["experiment", action, str(shop / "shop.shortlist"), *more])


def test_from_start_to_stop(shop, capsys):
    assert run(shop, "start", "--name", "spring", *ARMS, "--guardrails", "empty=0.1") == 0
    out = capsys.readouterr().out
    assert "spring runs" in out
    assert "three 0 (the model in service (shop, file " in out
    assert run(shop, "start", "--name", "summer", *ARMS) == 2
    assert "'spring' runs" in capsys.readouterr().err
    assert run(shop, "status", "--json") == 0
    status = json.loads(capsys.readouterr().out)
    assert [arm["name"] for arm in status["arms"]] == ["three", "dynamic"]
    assert run(shop, "stop", "--name", "spring") == 0
    assert "spring has ended" in capsys.readouterr().out
    assert run(shop, "stop", "--name", "winter") == 2


def test_plan_replays_held_out_data(shop, capsys):
    assert run(shop, "plan", "--test", str(shop / "held.csv"), *ARMS, "--json") == 0
    plan = json.loads(capsys.readouterr().out)["plans"]["dynamic"]
    model = sl.load_model(shop / "shop.shortlist")
    truth = sl.read_interactions(shop / "held.csv")
    users = [user for user in truth.users.values if user in model.users_]

    def hits(**options):
        relevant = {
            user: set(truth.items.to_ids(truth.item[truth.indptr[k] : truth.indptr[k + 1]]))
            for k, user in enumerate(truth.users.values)
        }
        lists = model.recommend(users, **options)
        return np.mean([len(relevant[row.user_id].intersection(row.items)) for row in lists])

    assert plan["reference"] == pytest.approx(hits(N=3))
    assert plan["lift"] == pytest.approx(hits() - hits(N=3))
    assert run(shop, "plan", "--test", str(shop / "held.csv"), *ARMS, "--users_per_day", "100") == 0
    out = capsys.readouterr().out
    assert "dynamic against three, hits: The expected difference is" in out
    assert f"Expected, from what {len(users):,} users of" in out
    assert "100 new users per day:" in out  # given, not estimated
    assert run(shop, "plan", "--test", str(shop / "held.csv"), *ARMS) == 0
    assert "per day, estimated from those of the latest 28 days:" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("more", "text"),
    [
        (["--arm", "a", "--arm", "b:share=0.5"], "share=0.5"),
        (["--arm", "a:share=x"], "must be a number"),
        (["--arm", "a:share=0.5,size=3"], "--arm must be"),
        (["--arm", "a:share=0.5,model=none", "--arm", "b:share=0.5"], "no model named 'none'"),
        ([*ARMS, "--guardrails", "empty"], "--guardrails"),
        ([], "2 to 10 arms"),
    ],
)
def test_wrong_flags_are_refused(shop, capsys, more, text):
    assert run(shop, "start", "--name", "autumn", *more) == 2
    assert text in capsys.readouterr().err


def test_plan_needs_held_out_data(shop, capsys):
    assert run(shop, "plan", *ARMS) == 2
    assert "--test" in capsys.readouterr().err


def test_texts_of_arms():
    arm = parse_arm("long:share=0.25,max_items=30,model=other,min_items=2")
    assert (arm.name, arm.share, arm.model) == ("long", 0.25, "other")
    assert arm.options == {"max_items": 30, "min_items": 2}
    assert parse_guardrail("empty=0.02") == ("empty", 0.02)
    with pytest.raises(ConfigError):
        parse_guardrail("empty")
