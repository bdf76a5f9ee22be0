"""Connections hashed to uplinks (ECMP): what collides shares an uplink, and the fullest one sets the ring's pace
(docs/model.md section 2)."""

import json
import os
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
STEPCAST = os.environ.get("STEPCAST", str(ROOT / "build/release/stepcast"))
NIC = 1e9
NODES = 3
BYTES = 96_000_000  # a multiple of all numbers of ranks and channels below
WORD = (1 << 64) - 1


def mix(x: int) -> int:
    """splitmix64, as Steele, Lea & Flood give it (OOPSLA 2014)."""
    x = (x + 0x9E3779B97F4A7C15) & WORD
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & WORD
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & WORD
    return x ^ (x >> 31)


def uplink(seed: int, source: int, destination: int, channel: int, uplinks: int) -> int:
    """Of a leaf; source and destination are NICs, numbered through all nodes."""
    value = mix(seed)
    for field in (0, source, destination, channel):
        value = mix(value ^ field)
    return value % uplinks


def platform(nics: int, oversubscription: float, uplinks: int, balancing: str, seed: int = 0) -> dict[str, Any]:
    """Nodes of as many GPUs as NICs, each node on a leaf of its own."""
    level = {"nodes_per_group": 1, "oversubscription": oversubscription, "uplinks": uplinks}
    node: dict[str, Any] = {
        "gpus": nics,
        "nics": {"count": nics, "bandwidth_Bps": NIC, "alpha_s": 0.0, "near_gpus": [[i] for i in range(nics)]},
    }
    if nics > 1:
        node["interconnect"] = {"kind": "switch", "bandwidth_Bps": 1e13, "alpha_s": 0.0}
    return {
        "format": "stepcast.platform/1",
        "name": "leaves of one node",
        "source": "tests/cli/ecmp_test.py",
        "gpu": {"name": "example GPU", "memory_bytes": 17179869184},
        "node": node,
        "fabric": {"kind": "fat_tree", "load_balancing": balancing, "ecmp_seed": seed, "levels": [level]},
        "nodes": NODES,
    }


def rows(folder: Path, machine: dict[str, Any], channels: int, *more: str) -> Any:
    (folder / "platform.json").write_text(json.dumps(machine))
    words = ["collective", "--platform", "platform.json", "--op", "all_reduce", "--json", "-", "--algorithm", "ring"]
    words += ["--protocol", "Simple", "--channels", str(channels), "--bytes", str(BYTES), *more]
    words += ["--gpus", str(machine["node"]["gpus"] * NODES)]
    done = subprocess.run([STEPCAST, *words], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout[done.stdout.index("{") :])["rows"]


def time_of(folder: Path, machine: dict[str, Any], channels: int, *more: str) -> Any:
    return rows(folder, machine, channels, *more)[0]["time_s"]


def ring_time(ranks: int, channels: int, rate: float) -> float:
    """Each channel sends 2 (n - 1) / n of its share at the rate of its slowest hop."""
    return 2 * (ranks - 1) / ranks * BYTES / channels / rate


def fullest(seed: int, nics: int, uplinks: int) -> int:
    """How many of the rings, one on each NIC, have the fullest uplink of any leaf. The ways down are the same: all that
    comes into a leaf is from one other leaf."""
    return max(
        max(Counter(uplink(seed, n * nics + i, (n + 1) % NODES * nics + i, 0, uplinks) for i in range(nics)).values())
        for n in range(NODES)
    )


SEEDS = range(12)


@pytest.mark.parametrize("seed", SEEDS)
def test_ring_has_the_pace_of_the_fullest_uplink(tmp_path: Path, seed: int) -> None:
    """Each uplink has half a NIC's rate. Of k rings on the fullest one each gets a k-th, and nobody less: no link of
    theirs is fuller."""
    rate = NIC / 2 / fullest(seed, 4, 8)
    assert time_of(tmp_path, platform(4, 1, 8, "ecmp", seed), 4) == pytest.approx(ring_time(12, 4, rate), rel=1e-3)


def test_seeds_differ() -> None:
    assert {fullest(seed, 4, 8) for seed in SEEDS} == {2, 3, 4}


@pytest.mark.parametrize("seed", range(6))
def test_channels_collide_unless_queue_pairs_are_hashed(tmp_path: Path, seed: int) -> None:
    """Two channels through one NIC, over two uplinks of a quarter of its rate each."""
    both = ring_time(3, 2, NIC / 4 / 2)
    assert time_of(tmp_path, platform(1, 2, 2, "ecmp", seed), 2) == pytest.approx(both, rel=1e-3)
    collide = any(uplink(seed, n, (n + 1) % 3, 0, 2) == uplink(seed, n, (n + 1) % 3, 1, 2) for n in range(3))
    expected = both if collide else ring_time(3, 2, NIC / 4)
    assert time_of(tmp_path, platform(1, 2, 2, "ecmp_qp", seed), 2) == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize("balancing", ["ecmp", "ecmp_qp"])
def test_never_beats_ideal_balancing(tmp_path: Path, balancing: str) -> None:
    for oversubscription, uplinks in ((1, 2), (1, 4), (3, 3), (2, 16)):
        ideal = time_of(tmp_path, platform(4, oversubscription, uplinks, "ideal"), 8)
        for seed in range(3):
            hashed = time_of(tmp_path, platform(4, oversubscription, uplinks, balancing, seed), 8)
            assert hashed >= ideal * (1 - 1e-9), (oversubscription, uplinks, seed)


def test_one_uplink_is_ideal_balancing(tmp_path: Path) -> None:
    ideal = rows(tmp_path, platform(4, 3, 1, "ideal"), 8)
    for balancing in ("ecmp", "ecmp_qp"):
        assert rows(tmp_path, platform(4, 3, 1, balancing, 5), 8) == ideal


def test_engines_agree(tmp_path: Path) -> None:
    machine = platform(4, 1, 8, "ecmp", 3)
    automatic = time_of(tmp_path, machine, 4)
    assert time_of(tmp_path, machine, 4, "--engine", "simgrid") == pytest.approx(automatic, rel=1e-9)


def test_a_sweep_over_the_seed(tmp_path: Path) -> None:
    (tmp_path / "platform.json").write_text(json.dumps(platform(4, 1, 8, "ideal")))
    words = ["run", "bench/scenarios/step.json", "-o", "-", "--set", f"platform={tmp_path / 'platform.json'}"]
    words += ["--set", "cluster.gpus=12", "--set", "platform.fabric.load_balancing=ecmp"]
    words += ["--set", f"vary.platform.fabric.ecmp_seed={list(SEEDS)}"]

    def points() -> Any:
        done = subprocess.run([STEPCAST, *words], cwd=ROOT, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)["points"]

    first = points()
    assert len({point["step_time_s"] for point in first}) >= 3
    assert first == points()
