"""The examples of other engines on the page on scale: a user in two files or batches gets one list."""

import re
from importlib.util import find_spec
from pathlib import Path

import polars as pl
import pytest

import shortlist as sl

PAGE = Path(__file__).parents[2] / "docs" / "scale.md"
EXAMPLES = re.findall(
    r"^```python no-run\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
)


@pytest.mark.filterwarnings("ignore")  # of the engines
@pytest.mark.parametrize("engine", ["duckdb", "ray", "dask.dataframe"])
def test_an_example_makes_the_lists_of_one_process(engine, tmp_path, monkeypatch):
    if find_spec(engine.partition(".")[0]) is None:
        pytest.skip(f"{engine} is not installed")
    (example,) = (text for text in EXAMPLES if re.search(rf"^import (.*, )?{engine}\b", text, re.MULTILINE))
    monkeypatch.chdir(tmp_path)
    data = sl.load_dataset("sample")
    table = data.to_frame().sort("user_id", maintain_order=True)
    middle = table.height // 2
    assert table["user_id"][middle - 1] == table["user_id"][middle]  # a user in two files
    Path("orders").mkdir()
    table[:middle].write_parquet("orders/0.parquet")
    table[middle:].write_parquet("orders/1.parquet")
    model = sl.PersonalFrequency().fit(data)
    model.save("shop.shortlist")
    exec(compile(example, f"{engine} in scale.md", "exec"), {"__name__": "page"})
    lists = pl.read_parquet("lists/*.parquet" if Path("lists").is_dir() else "lists.parquet")
    expected = model.recommend(history=table, N=5).to_frame().sort("user_id", "rank")
    assert lists.select(expected.columns).sort("user_id", "rank").equals(expected)
