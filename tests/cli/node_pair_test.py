"""A limit on what two nodes exchange, both ways together: a ring over two of them sends to the node that
it receives from, over three to another one (docs/model.md section 2)."""

import json
import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
STEPCAST = os.environ.get("STEPCAST", str(ROOT / "build/release/stepcast"))
BYTES = 96_000_000  # a multiple of all numbers of ranks below
PAIR = 8e8
PLATFORM = {
    "format": "stepcast.platform/1",
    "name": "two GPUs in a node",
    "source": "tests/cli/node_pair_test.py",
    "gpu": {"name": "example GPU", "memory_bytes": 17179869184},
    "node": {
        "gpus": 2,
        "interconnect": {"kind": "switch", "bandwidth_Bps": 1e13, "alpha_s": 0.0},
        "nics": {"count": 1, "bandwidth_Bps": 1e13, "alpha_s": 0.0},
    },
    "nodes": 4,
}


def time_of(folder, gpus, per_node, nic):
    platform = json.loads(json.dumps(PLATFORM))
    platform["node"]["nics"]["bandwidth_Bps"] = nic
    platform["fabric"] = {"kind": "switch", "node_pair_bandwidth_Bps": PAIR}
    (folder / "platform.json").write_text(json.dumps(platform))
    words = ["collective", "--platform", "platform.json", "--op", "all_reduce", "--json", "-"]
    words += ["--algorithm", "ring", "--protocol", "Simple", "--channels", "1"]
    words += ["--gpus", str(gpus), "--gpus-per-node", str(per_node), "--bytes", str(BYTES)]
    done = subprocess.run([STEPCAST, *words], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout[done.stdout.index("{") :])["rows"][0]["time_s"]


@pytest.mark.parametrize(
    ("gpus", "per_node", "rate"),
    [(2, 1, PAIR / 2), (4, 2, PAIR / 2), (3, 1, PAIR), (6, 2, PAIR), (8, 2, PAIR)],
)
def test_ring_under_a_limit_for_each_pair(tmp_path, gpus, per_node, rate):
    expected = 2 * (gpus - 1) / gpus * BYTES / rate
    assert time_of(tmp_path, gpus, per_node, 1e13) == pytest.approx(expected, rel=1e-3)


def test_from_three_nodes_on_a_nic_below_the_limit_sets_the_pace(tmp_path):
    """On two nodes half of the limit is less than the NIC has, on three the NIC is less than the limit."""
    nic = 0.75 * PAIR
    two, three = time_of(tmp_path, 4, 2, nic), time_of(tmp_path, 6, 2, nic)
    assert two == pytest.approx(2 * 3 / 4 * BYTES / (PAIR / 2), rel=1e-3)
    assert three == pytest.approx(2 * 5 / 6 * BYTES / nic, rel=1e-3)
