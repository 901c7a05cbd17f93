"""The examples for vector stores run where the libraries are installed."""

import re
from pathlib import Path

import pyarrow.parquet as pq
import pytest

PAGE = Path(__file__).parents[2] / "docs" / "vector-stores.md"
BLOCKS = re.findall(r"<!-- run with (\w+) -->\n```python\n(.*?)```", PAGE.read_text(), re.DOTALL)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize(("library", "text"), BLOCKS, ids=[library for library, _ in BLOCKS])
def test_vectors_go_out_of_a_store_and_back(library, text, tmp_path, monkeypatch, capsys):
    pytest.importorskip(library, reason=f"{library} is not installed")
    monkeypatch.chdir(tmp_path)
    names = {}
    exec(compile(text, "example", "exec"), names)
    if "to_batches" in text:
        assert sum(pq.read_metadata(path).num_rows for path in Path("export").iterdir()) == 100
    elif library == "faiss":
        assert (names["found"][:, 0] == range(5)).all()
        assert (names["again"][:, 0] == range(5)).all()
    else:
        assert (names["hits"][0]["doc_id"], names["hits"][0]["tags"]) == (7, ["a"])
        assert names["renewed"].schema.field("vector").type == names["exported"].schema.field("vector").type


def test_both_stores_have_an_example():
    assert [library for library, _ in BLOCKS] == ["faiss", "lancedb", "lancedb"]
