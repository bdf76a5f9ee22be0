"""docs/make_accuracy.py: the tables and pictures of docs/accuracy.md."""

import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "docs"))
make_accuracy = pytest.importorskip("make_accuracy")


def suite(name, title, ids, peers=None):
    def case(place, text):
        margin = {"below_s": 1e-5, "above_s": 1e-5}
        return {"id": text, "split": "test", "predicted": 1e-3 * 3**place, "measured": 1.1e-3 * 3**place, "error": -1 / 11,
                "band_of": {"trace": margin, "calibration": margin},
                "parts": {"compute_s": 6e-4 * 3**place, "host_s": 0, "optimizer_s": 0, "exposed_comm_s": 4e-4 * 3**place,
                          "wait_s": 0, "overlapped_comm_s": 0}}

    errors = {"cases": len(ids), "median_abs_error": 0.1, "mean_abs_error": 0.125, "p90_abs_error": 0.1, "max_abs_error": 0.2,
              "bias": -0.1, "inside_band": 0.5}
    return {"name": name, "title": title, "derived": False, "skipped": None, "cases": [case(i, text) for i, text in enumerate(ids)],
            "summary": {"test": errors, "fit": None, "orders": 0, "orders_right": 0}, "peers": peers, "missed": [],
            "bars": {"mean_abs_error": None, "median_abs_error": None, "order_right": None}, "fitted": {}}


def test_tables_and_pictures_are_of_the_same_document(tmp_path, monkeypatch):
    suites = [suite("steps", "On A", ["one", "two"], {"text": "Somebody", "mean_error": 0.25}),
              suite("collectives", "every second size, from the others", ["a: ring, 1 KiB", "b: ring, 1 KiB", "a: ring, 2 KiB"]),
              suite("others", "On B", ["three"])]
    pooled = [{"name": "steps", "files": 1, "test": suites[0]["summary"]["test"]},
              {"name": None, "files": 2, "test": suites[1]["summary"]["test"]}]
    (tmp_path / "v.json").write_text(json.dumps(
        {"versions": {"revision": "abc", "simgrid": "3"}, "suites": suites, "pooled": pooled}))
    (tmp_path / "page.md").write_text(f"before\n{make_accuracy.BEGIN}old\n{make_accuracy.END}after\n")
    monkeypatch.setattr(make_accuracy, "DOCS", tmp_path)
    monkeypatch.setattr(make_accuracy, "PAGE", tmp_path / "page.md")
    monkeypatch.setattr(sys, "argv", ["make_accuracy.py", str(tmp_path / "v.json"), "today"])
    make_accuracy.main()
    page = (tmp_path / "page.md").read_text()
    assert page.startswith("before\n") and page.endswith("after\n") and "old" not in page
    assert "| `steps`: On A | 2 | 10.0 % | 12.5 % |" in page
    assert "| all | 2 | 3 | 10.0 % |" in page
    assert "| `steps`: On A | 12.5 % | 25.0 % | Somebody |" in page
    # All are off by 10 %, but 10 us of margin are less of a longer step.
    assert "| `steps` | 2 | 100 % | 50 % |" in page
    for name in ("accuracy_steps.png", "accuracy_collectives.png"):
        picture = (tmp_path / name).read_bytes()
        assert picture.startswith(b"\x89PNG") and len(picture) < 100_000
        assert f"]({name})" in (ROOT / "docs/accuracy.md").read_text() and (ROOT / "docs" / name).stat().st_size < 100_000


def test_names_in_a_legend_are_short_and_tell_files_apart():
    names = make_accuracy.short(["A benchmark of steps, 10 Gb/s: from 4 to 8 GPUs and more", "A benchmark of steps, 100 Gb/s: the same"])
    assert names == ["10 Gb/s", "100 Gb/s"]
    assert make_accuracy.short(["Only one"]) == ["Only one"]
