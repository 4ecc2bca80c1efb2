"""Compile the kernels that the service needs: fit every kind of model on the sample data, and use it."""

import tempfile
from pathlib import Path

import shortlist as sl
from shortlist.serve.observing import EventForm, warm_up

data = sl.load_dataset("sample")
for model in (
    sl.DKBPRMF(n_epochs=1),
    sl.HRM(n_epochs=1, repeat_decay=0.9, trend_half_life=3.0),
    sl.TwoStage(),
):
    fitted = model.fit(data).set_cutoff(sl.cutoff.FixedN(N=5))
    with tempfile.TemporaryDirectory() as folder:
        loaded = sl.load_model(fitted.save(Path(folder) / "model.shortlist"))
    loaded.explain(loaded.users_.values[0])
    warm_up(loaded, EventForm.of(loaded.history_))
