"""RxRx3-core in its published layout: small files with the columns that its description lists."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.testing import assert_array_equal

from congruence.errors import InputError
from congruence.experiments.data.rxrx3 import EMBEDDINGS, METADATA, rxrx3_core

LINES = """well_id,experiment_name,plate,address,gene,treatment,SMILES,concentration,perturbation_type,cell_type
gene-079_8_H29,gene-079,8,H29,RPLP2,RPLP2_guide_4,,,CRISPR,HUVEC
gene-060_9_P28,gene-060,9,P28,EMPTY_control,EMPTY_control,,,CRISPR,HUVEC
compound-001_19_D20,compound-001,19,D20,,Dequalinium,"CC1=[N+](C)C2 |c:1,13,t:16|",0.25,COMPOUND,HUVEC
compound-001_11_U08,compound-001,11,U08,,EMPTY_control,,,COMPOUND,HUVEC
compound-004_43_B08,compound-004,43,B08,,CRISPR_control,,,COMPOUND,HUVEC
"""
IDS = [line.split(",")[0] for line in LINES.splitlines()[1:]]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The two files as published, the embeddings in another order and with a well that the metadata lack."""
    monkeypatch.setenv("CONGRUENCE_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    there = tmp_path / "rxrx3-core"
    there.mkdir()
    (there / METADATA).write_text(LINES)
    write_embeddings(there, [*IDS[::-1], "gene-001_1_A01"])
    return there


def write_embeddings(folder, ids):
    numbers = np.arange(4 * len(ids), dtype=np.float32).reshape(-1, 4)
    columns = {"well_id": ids} | {f"feature_{j}": numbers[:, j] for j in range(4)}
    pq.write_table(pa.table(columns), folder / EMBEDDINGS)


def test_wells_are_joined_by_their_id(folder):
    wells = rxrx3_core(kind=None)
    assert wells.ids.tolist() == IDS[::-1]
    assert_array_equal(wells.values[0], [0, 1, 2, 3])
    assert wells.values.dtype == np.float32
    assert wells.metadata["address"].tolist() == ["B08", "U08", "D20", "P28", "H29"]
    assert wells.features == ("feature_0", "feature_1", "feature_2", "feature_3")


def test_genes_and_compounds_are_perturbations_and_plates_belong_to_experiments(folder):
    wells = rxrx3_core(kind=None)
    controls = ["CRISPR_control", "EMPTY_control"]
    assert wells.metadata["perturbation"].tolist() == [*controls, "Dequalinium", "EMPTY_control", "RPLP2"]
    assert wells.metadata["guide"].tolist()[-1] == "RPLP2_guide_4"
    assert wells.metadata["batch"].tolist()[-2:] == ["gene-060_9", "gene-079_8"]
    assert wells.metadata["is_control"].tolist() == [False, True, False, True, False]
    assert wells.metadata["SMILES"].tolist()[2] == "CC1=[N+](C)C2 |c:1,13,t:16|"
    assert wells.metadata["concentration"][2] == 0.25


def test_one_kind_of_perturbation_can_be_chosen(folder):
    assert rxrx3_core().ids.tolist() == IDS[1::-1]
    assert rxrx3_core(kind="COMPOUND").n == 3
    with pytest.raises(InputError, match="kind must be one of 'CRISPR', 'COMPOUND', None; got 'crispr'"):
        rxrx3_core(kind="crispr")


def test_embeddings_of_another_model_can_be_given(folder, tmp_path):
    write_embeddings(tmp_path, IDS[:2])
    assert rxrx3_core(embeddings=tmp_path / EMBEDDINGS).n == 2
    with pytest.raises(InputError, match="has no COMPOUND wells; kind=None takes all"):
        rxrx3_core(kind="COMPOUND", embeddings=tmp_path / EMBEDDINGS)


def test_files_that_are_not_there_are_named_with_how_to_get_them(folder):
    (folder / EMBEDDINGS).unlink()
    with pytest.raises(InputError, match=f"not {EMBEDDINGS}. Get {METADATA} and .* from Hugging Face"):
        rxrx3_core()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("well_id,plate\na,1\n", "has no column experiment_name, address, .*so it is not the metadata of RxRx3-core"),
        (LINES.replace("CRISPR,H", "SIRNA,H"), "must be CRISPR or COMPOUND; got SIRNA"),
        (LINES.splitlines()[0] + "\nx,e,1,A01,g,t,,,CRISPR,HUVEC\n", "no id is in all tables: .*; metadata has x"),
    ],
)
def test_metadata_of_another_kind_are_refused(text, message, folder):
    (folder / METADATA).write_text(text)
    with pytest.raises(InputError, match=message):
        rxrx3_core()
