"""The figures of the README are what the commands beside them print."""

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
STEPCAST = os.environ.get("STEPCAST", str(ROOT / "build/release/stepcast"))
README = (ROOT / "README.md").read_text()


def after(comment: str) -> str:
    return README.split(f"<!-- {comment} -->\n")[1]


def test_quickstart_table():
    printed = subprocess.run([STEPCAST, "run", "scenarios/quickstart.json"], cwd=ROOT, check=True,
                             capture_output=True, text=True).stdout
    assert after("stepcast run scenarios/quickstart.json").startswith(f"```\n{printed}```\n")


def test_comparison_with_measurements():
    case = "tests/validation/pytorch_ddp_resnet50.json"
    printed = subprocess.run([sys.executable, "tests/validation/compare.py", case], cwd=ROOT, check=True,
                             capture_output=True, text=True).stdout
    assert after(f"tests/validation/compare.py {case}").startswith(printed)


def test_comparison_of_all_reduce():
    files = ["platforms/abci_v100.json", "platforms/abci_v100.calibration.json"]
    script = "tests/validation/compare_all_reduce.py"
    printed = subprocess.run([sys.executable, script, *files], cwd=ROOT, check=True, capture_output=True,
                             text=True).stdout
    assert after(" ".join([script, *files])).startswith(printed)


def test_residuals_of_the_calibration():
    calibration = json.loads((ROOT / "platforms/abci_v100.calibration.json").read_text())
    words = " ".join(README.split())
    of = {protocol["name"]: protocol["residuals"] for protocol in calibration["protocols"]}
    simple, ll = ({key: f"{of[name][key]:.1%}".replace("%", " %") for key in ("median_abs", "max_abs")}
                  for name in ("Simple", "LL"))
    assert f"a median error of {simple['median_abs']} and a worst of {simple['max_abs']} for Simple" in words
    assert f"{ll['median_abs']} and {ll['max_abs']} for LL" in words


def test_errors_of_the_shipped_calibrations():
    files = sorted((ROOT / "platforms").glob("*.calibration.json"))
    printed = subprocess.run([STEPCAST, "validate", "collectives", *files], cwd=ROOT, check=True, capture_output=True,
                             text=True).stdout.splitlines()
    page = (ROOT / "docs/calibration.md").read_text()
    heads = [line.split("  ")[0] for line in printed if line.endswith("1-64 MiB       p90")]
    rows = [line.split() for line in printed if line.startswith("all of them")]
    assert len(heads) == 5
    for what, row in zip(heads, rows, strict=True):
        assert f"| {what} | {row[3]} | {row[4]} % | {row[6]} % | {row[10]} % | {row[12]} % |\n" in page
    assert f"calibrations` prints those of {len(files)} machines" in README


def test_its_links_lead_somewhere():
    for target in [part.split(")")[0] for part in README.split("](")[1:]]:
        assert target.startswith("https://") or (ROOT / target).exists(), target
