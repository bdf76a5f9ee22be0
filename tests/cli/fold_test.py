"""What is alike is simulated once: --no-fold changes no figure, and the result says what was not folded."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
STEPCAST = os.environ.get("STEPCAST", str(ROOT / "build/release/stepcast"))
STEP = "bench/scenarios/step.json"
FAT_TREE = "bench/scenarios/fat_tree.platform.json"


def stepcast(*words: object) -> str:
    done = subprocess.run(
        [STEPCAST, *map(str, words)], cwd=ROOT, capture_output=True, text=True, timeout=120, check=True
    )
    return done.stdout


def points_of(*words: object) -> Any:
    return json.loads(stepcast("run", *words, "-o", "-"))["points"]


@pytest.mark.parametrize(
    "words",
    [
        (STEP, "--set", "vary.cluster.gpus=[2,8,96]"),
        (STEP, "--set", "cluster.gpus=24", "--engine", "simgrid"),
        ("bench/scenarios/step_jitter.json", "--set", "cluster.gpus=96"),
        ("bench/scenarios/step_slow_nic.json", "--set", "cluster.gpus=96"),
        (
            *(STEP, "--set", f"platform=../../{FAT_TREE}", "--set", "cluster.gpus=512"),
            *("--set", "collective.algorithm=hierarchical", "--set", "collective.channels=1"),
            *("--set", "model.parameters.0.elements=1000003"),
        ),
        (
            *(STEP, "--set", "cluster.gpus=96", "--set", "training.accumulation_steps=3"),
            *("--set", "training.accumulation=sync_every_micro_step"),
            *("--set", 'imperfections={"straggler":{"rank":5,"time_factor":2,"every_steps":10}}'),
            *("--set", 'interference={"computation_factor":1.5,"communication_factor":1.2}'),
        ),
        ("scenarios/quickstart.json", "--set", "vary.cluster.gpus=[8,64]"),
    ],
)
def test_no_figure_changes(words: tuple[str, ...]) -> None:
    folded, full = points_of(*words), points_of(*words, "--no-fold")
    for one, other in zip(folded, full, strict=True):
        assert other["folding"]["rank_classes"] == other["world_size"]
        assert one.pop("folding")["rank_classes"] <= other.pop("folding")["rank_classes"]
        assert one == other


def test_collective_gives_the_same_row() -> None:
    words = ("collective", "--platform", FAT_TREE, "--gpus", 512, "--bytes", "25MiB", "--json", "-")
    words = (*words, "--algorithm", "hierarchical", "--channels", 1)
    folded, full = (json.loads(stepcast(*words, *more)) for more in ((), ("--no-fold",)))
    assert folded["rows"] == full["rows"]


def test_equal_ranks_are_one_class() -> None:
    (point,) = points_of(STEP, "--set", "cluster.gpus=1024")
    assert point["folding"] == {"rank_classes": 1, "not_folded": None}


def test_what_differs_is_told() -> None:
    slow = ("bench/scenarios/step_slow_nic.json", "--set", "cluster.gpus=256")
    assert "\nNot folded at 256 GPUs: no two nodes are alike\n" in stepcast("run", *slow)
    jitter = ("bench/scenarios/step_jitter.json", "--set", "cluster.gpus=256")
    assert "\nNot folded at 256 GPUs: ranks compute at 256 paces\n" in stepcast("run", *jitter)
    assert "Not folded" not in stepcast("run", STEP, "--set", "cluster.gpus=256")
