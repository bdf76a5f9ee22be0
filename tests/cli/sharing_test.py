"""What one point of a sweep has simulated the others need not simulate again, and no figure tells."""

import json
import os
import resource
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
STEPCAST = os.environ.get("STEPCAST", str(ROOT / "build/release/stepcast"))
# BERT on 16 A100: the rings of 8 NICs share links unevenly, so its collectives are simulated on SimGrid. Buckets have the
# same sizes whatever the accumulation and the micro-batch.
ACCUMULATIONS, MICRO_BATCHES = [1, 2, 16], [16, 64]
SWEEP = ("run", "scenarios/nics.json", "--set", 'cases=[{"name":"8 NICs","set":{"cluster.gpus":16}}]')
VARY = ("--set", f"vary.training.accumulation_steps={ACCUMULATIONS}", "--set", f"vary.training.micro_batch={MICRO_BATCHES}")


def stepcast(*words: object) -> str:
    return subprocess.run(
        [STEPCAST, *map(str, words)], cwd=ROOT, capture_output=True, text=True, timeout=300, check=True
    ).stdout


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sweep without anything at the same time."""
    result = tmp_path_factory.mktemp("sweep") / "result.json"
    stepcast(*SWEEP, *VARY, "--jobs", 1, "-o", result)
    return result


def test_each_point_is_what_it_is_alone(sweep: Path) -> None:
    points = json.loads(sweep.read_text())["points"]
    assert [point["engine"] for point in points] == ["simgrid"] * 6
    for point, (accumulation, micro_batch) in zip(
        points, ((a, m) for a in ACCUMULATIONS for m in MICRO_BATCHES), strict=True
    ):
        alone = json.loads(
            stepcast(
                *(*SWEEP, "--set", f"vary.training.accumulation_steps=[{accumulation}]"),
                *("--set", f"vary.training.micro_batch=[{micro_batch}]", "-o", "-"),
            )
        )["points"]
        assert alone == [point]


@pytest.mark.parametrize("jobs", [2, 5, 12])
def test_it_does_not_matter_who_simulates_what(jobs: int, sweep: Path, tmp_path: Path) -> None:
    for _ in range(2):
        stepcast(*SWEEP, *VARY, "--jobs", jobs, "-o", tmp_path / "result.json")
        assert (tmp_path / "result.json").read_bytes() == sweep.read_bytes()


def test_shards_share_by_themselves(sweep: Path, tmp_path: Path) -> None:
    for shard in (1, 2):
        stepcast(*SWEEP, *VARY, "--shard", f"{shard}/2", "-o", tmp_path / f"{shard}.part")
    stepcast("merge", tmp_path / "1.part", tmp_path / "2.part", "-o", tmp_path / "result.json")
    assert (tmp_path / "result.json").read_bytes() == sweep.read_bytes()


@pytest.mark.skipif(b"libmpi.so" not in Path(STEPCAST).read_bytes(), reason="built without MPI (STEPCAST_MPI)")
@pytest.mark.skipif(shutil.which("mpirun") is None, reason="no mpirun")
def test_ranks_share_by_themselves(sweep: Path, tmp_path: Path) -> None:
    mpirun = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "2"]
    words = [STEPCAST, *SWEEP, *VARY, "--jobs", "2", "-o", tmp_path / "result.json"]
    subprocess.run([*mpirun, *map(str, words)], cwd=ROOT, capture_output=True, timeout=300, check=True)
    assert (tmp_path / "result.json").read_bytes() == sweep.read_bytes()


def test_a_limit_on_the_size_of_files_is_not_one_on_what_is_shared() -> None:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))

    words = [STEPCAST, "list", "algorithms"]
    assert subprocess.run(words, stdout=subprocess.PIPE, preexec_fn=limit).returncode == 0


def processes_of(group: int) -> set[int]:
    found = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        if int(fields[2]) == group and fields[0] != "Z":
            found.add(int(stat.parent.name))
    return found


@pytest.mark.parametrize("to_group", [True, False])
def test_nothing_is_left_of_a_run_that_is_killed(to_group: bool) -> None:
    """Ctrl-C goes to all processes, a kill to the first one."""
    command = [STEPCAST, "run", "scenarios/gpu_count.json", "--set", "vary.cluster.gpus=[512]", "--jobs", "3", "-o", "-"]
    running = subprocess.Popen(
        command,
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # also where the tests run in the background
    )
    until = time.monotonic() + 60
    while len(processes_of(running.pid)) < 5:  # it, its point, and three collectives of that
        assert time.monotonic() < until and running.poll() is None
        time.sleep(0.05)
    if to_group:
        os.killpg(running.pid, signal.SIGINT)
    else:
        running.kill()
    assert running.wait(timeout=30) != 0
    until = time.monotonic() + 30
    while processes_of(running.pid):
        assert time.monotonic() < until
        time.sleep(0.05)
