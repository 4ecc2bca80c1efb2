"""Compile the kernels that the service needs, by fitting every kind of model once on the sample data."""

import tempfile
from pathlib import Path

import shortlist as sl

data = sl.load_dataset("sample")
for model in (
    sl.DKBPRMF(n_epochs=1),
    sl.HRM(n_epochs=1, repeat_decay=0.9, trend_half_life=3.0),
    sl.TwoStage(),
):
    fitted = model.fit(data).set_cutoff(sl.cutoff.FixedN(N=5))
    with tempfile.TemporaryDirectory() as folder:
        loaded = sl.load_model(fitted.save(Path(folder) / "model.shortlist"))
    user = loaded.users_.values[0]
    loaded.recommend([user])
    loaded.recommend(history={"session": loaded.items_.values[:3].to_list()})
    loaded.explain(user)
