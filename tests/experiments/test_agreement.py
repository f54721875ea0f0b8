"""The stored records against the paper, and the report against the stored records."""

import pytest
from experiments.datasets import DATASETS
from experiments.records import AUC_FIELDS
from experiments.settings import paper
from experiments.tables import Aucs

from experiments import records, report

COMPARABLE = ("fashion_mnist", "mnist", "drive_diagnosis", "letter_recognition")
CELLS = [
    ("offline", "onlad", 0.015),
    ("online", "onlad", 0.015),
    ("online", "onlad-nf", 0.03),
    ("offline", "fpelm", 0.015),
    ("online", "fpelm", 0.015),
]


@pytest.mark.parametrize(("testbed", "method", "most"), CELLS)
@pytest.mark.parametrize("dataset", COMPARABLE)
def test_with_the_papers_settings_the_auc_is_the_papers(testbed, method, most, dataset):
    found = Aucs(testbed).mean(dataset, method, "paper")
    assert found is not None
    assert found.n == paper()["trials"]["testbed"]
    assert abs(found.mean - paper()["auc"][testbed][dataset][method]) <= most


@pytest.mark.parametrize("testbed", ["offline", "online"])
def test_stored_records_are_whole(testbed):
    names = [path.stem for path in (records.RESULTS / "auc").glob(f"{testbed}-*.jsonl")]
    assert names
    for name in names:
        stored = records.read(f"auc/{name}")
        assert len({records.key(r) for r in stored}) == len(stored), name
        for r in stored:
            assert list(r) == list(AUC_FIELDS)
            assert r["testbed"] == testbed
            assert f"{testbed}-{r['method']}" == name
            entry = DATASETS[r["dataset"]]
            assert entry.columns or r["dataset_sha256"] == entry.sha256


def test_without_records_the_page_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(records, "RESULTS", tmp_path / "none")
    monkeypatch.setattr(report, "_others", lambda: report.NOTHING)
    assert report.page(tmp_path).count(report.NOTHING) >= 6
