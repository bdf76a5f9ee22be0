"""Sweeps on more than one machine: shards, mpirun, ranks that die, hosts that are network namespaces."""

import contextlib
import importlib.util
import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
STEPCAST = Path(os.environ.get("STEPCAST", ROOT / "build/release/stepcast"))
QUICKSTART = "scenarios/quickstart.json"
SWEEP = ("run", QUICKSTART, "--set", "vary.cluster.gpus=[4,8,16,32]", "--set", "vary.training.accumulation_steps=[1,2,3,4,5,6]")
# As many points as a rank can be killed in the middle of.
LONG = ("run", QUICKSTART, "--set", "vary.cluster.gpus=[16,32]", "--set", "training.sync=per_tensor", "--set",
        f"vary.training.accumulation_steps={list(range(1, 61))}")
MPIRUN = ("mpirun", "--allow-run-as-root", "--oversubscribe")

needs_mpi = pytest.mark.skipif(b"libmpi.so" not in STEPCAST.read_bytes(), reason="built without MPI (STEPCAST_MPI)")
needs_mpirun = pytest.mark.skipif(shutil.which("mpirun") is None, reason="no mpirun")


def run(*command, **options):
    return subprocess.run([*map(str, command)], cwd=ROOT, capture_output=True, text=True, timeout=300, **options)


def stepcast(*arguments):
    return run(STEPCAST, *arguments)


def refused(*arguments):
    done = stepcast(*arguments)
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    assert done.stderr.count("\n") == 1, done.stderr
    return done.stderr.removeprefix("stepcast: ").rstrip("\n")


def ours(done):
    """What stepcast itself said; mpirun and its parts have banners of their own."""
    return [line for line in done.stderr.splitlines() if line.startswith("stepcast: ") and "warning" not in line]


def outputs(folder, name):
    return ["-o", folder / f"{name}.json", "--csv", folder / f"{name}.csv"]


def assert_same(folder, a, b, kinds=("json", "csv")):
    for kind in kinds:
        assert (folder / f"{a}.{kind}").read_bytes() == (folder / f"{b}.{kind}").read_bytes()


# -------------------------------------------------------------------------------------- shards


@pytest.fixture(scope="module")
def parts(tmp_path_factory):
    folder = tmp_path_factory.mktemp("parts")
    for i in (1, 2, 3):
        done = stepcast(*SWEEP, "--shard", f"{i}/3", "-o", folder / f"{i}.json")
        assert done.returncode == 0, done.stderr
        assert (folder / f"{i}.json").read_text().count("\n") == 1 + 24 / 3
    return folder


def test_shards_make_the_same_files(parts, tmp_path):
    assert stepcast(*SWEEP, *outputs(tmp_path, "whole")).returncode == 0
    done = stepcast("merge", parts / "2.json", parts / "3.json", parts / "1.json", *outputs(tmp_path, "merged"))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert_same(tmp_path, "whole", "merged")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["merged.csv", "merged.json", "whole.csv", "whole.json"]


def test_more_shards_than_points(tmp_path):
    scenario = ("run", QUICKSTART, "--set", "vary.cluster.gpus=[2,4]")
    for i in (1, 2, 3):
        assert stepcast(*scenario, "--shard", f"{i}/3", "-o", tmp_path / f"{i}.part").returncode == 0
    assert stepcast("merge", *sorted(tmp_path.glob("*.part")), "-o", tmp_path / "merged.json").returncode == 0
    assert stepcast(*scenario, "-o", tmp_path / "whole.json").returncode == 0
    assert_same(tmp_path, "whole", "merged", ["json"])


def test_points_that_failed_are_merged(tmp_path):
    # NVLS needs NVLink SHARP, which DGX-1V lacks: all points of the second part fail, and are told.
    sweep = ("run", QUICKSTART, "--set", "vary.cluster.gpus=[8,16]", "--set", 'vary.collective.algorithm=["ring","nvls"]')
    parts = [tmp_path / f"{i}.part" for i in (1, 2)]
    first, second = (stepcast(*sweep, "--shard", f"{i}/2", "-o", part) for i, part in enumerate(parts, 1))
    assert (first.returncode, second.returncode) == (0, 1)
    assert ours(second)[-1] == "stepcast: 2 of 2 points failed" and len(ours(second)) == 3
    done = stepcast("merge", *parts, *outputs(tmp_path, "merged"))
    assert (done.returncode, done.stderr) == (1, "stepcast: 2 of 4 points failed\n")
    assert stepcast(*sweep, *outputs(tmp_path, "whole")).returncode == 1
    assert_same(tmp_path, "whole", "merged")


def test_a_killed_shard_goes_on_as_itself_only(tmp_path):
    part = tmp_path / "1.json"
    left = subprocess.Popen([STEPCAST, *LONG, "--shard", "1/2", "-o", part, "--jobs", "1"], cwd=ROOT,
                            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_for_points(part, 3)
    assert refused(*LONG, "--shard", "1/2", "-o", part, "--resume") == f"-o: {part}.part is being written by another run"
    left.kill()
    left.wait()
    assert refused(*LONG, "--shard", "2/2", "-o", part, "--resume") == (
        f"--resume: {part}.part belongs to another scenario, other inputs, options or version; remove it to start anew")
    done_before = json.loads(Path(f"{part}.part").read_text().splitlines()[1])["index"]
    assert done_before % 2 == 0
    assert stepcast(*LONG, "--shard", "1/2", "-o", part, "--resume").returncode == 0
    lines = part.read_text().splitlines()
    assert [json.loads(line)["index"] for line in lines[1:]] == list(range(0, 120, 2))


def test_parts_that_make_no_whole(parts, tmp_path):
    out = tmp_path / "out.json"
    first, second, third = (parts / f"{i}.json" for i in (1, 2, 3))
    assert refused("merge", first, third, "-o", out) == "stepcast merge: 1 of 3 parts missing: 2/3"
    assert refused("merge", second, "-o", out) == "stepcast merge: 2 of 3 parts missing: 1/3, 3/3"
    assert refused("merge", first, second, first, "-o", out) == f"{first}: is part 1/3, and so is {first}"
    other = tmp_path / "other.json"
    assert stepcast(*SWEEP, "--shard", "2/2", "-o", other).returncode == 0
    assert refused("merge", first, other, "-o", out) == f"{other}: is part 2/2, but {first} is part 1/3"
    for sets in (["training.micro_batch=16"], ["platform.node.nics.bandwidth_Bps=1e9"]):
        assert stepcast(*SWEEP, "--set", *sets, "--shard", "2/3", "-o", other).returncode == 0
        assert refused("merge", first, other, third, "-o", out) == (
            f"{other}: belongs to another scenario, other inputs or options than {first}")
    head, *lines = second.read_text().splitlines(keepends=True)
    wrote = json.loads(head)
    was = wrote["version"]
    wrote["version"] = was.replace("0.1.0", "0.0.9")
    other.write_text(json.dumps(wrote) + "\n" + "".join(lines))
    assert refused("merge", first, other, third, "-o", out) == (
        f"{other}: was written by stepcast {was.replace('0.1.0', '0.0.9')}, this is {was}")
    other.write_text(head + "".join(lines)[:-1])
    assert refused("merge", first, other, third, "-o", out) == f"{other}: was cut off: it must hold 8 points"
    other.write_text(head + "".join(reversed(lines)))
    assert refused("merge", first, other, third, "-o", out) == f"{other}: must hold point 1 where it has 22"
    no_part = "is no part of a sweep; stepcast run SCENARIO --shard K/N -o FILE writes one"
    for text in ("", "{", '{"format":"stepcast.result/1"}', "\x00\x01"):
        other.write_text(text)
        assert refused("merge", other, "-o", out) == f"{other}: {no_part}"
    assert refused("merge", tmp_path / "none", "-o", out) == f"{tmp_path / 'none'}: cannot be read"
    assert refused("merge", first, second, third, "-o", first) == f"-o: {first} is an input of this run"
    assert not out.exists()


@pytest.mark.parametrize("words, line", [
    (["--shard", "0/2", "-o", "x"], "--shard: must be K/N with K from 1 to N, such as 1/4, got 0/2"),
    (["--shard", "3/2", "-o", "x"], "--shard: must be K/N with K from 1 to N, such as 1/4, got 3/2"),
    (["--shard", "2", "-o", "x"], "--shard: must be K/N with K from 1 to N, such as 1/4, got 2"),
    (["--shard", "1/2"], "--shard: needs -o FILE, the part that stepcast merge reads"),
    (["--shard", "1/2", "-o", "x", "--csv", "y"], "--shard: a part of the points has no --csv"),
    (["--shard", "1/2", "-o", "x", "--answer"], "--shard: a part of the points has no --answer"),
])
def test_shards_that_are_none(words, line):
    assert refused("run", QUICKSTART, *words) == line


# -------------------------------------------------------------------------------------- mpirun


def wait_for_points(result, count):
    part = Path(f"{result}.part")
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and not (part.exists() and part.read_bytes().count(b"\n") > count):
        time.sleep(0.01)


def long_run(out, *options, stderr=subprocess.DEVNULL):
    """mpirun at work, some points of LONG are done."""
    mpirun = subprocess.Popen([*MPIRUN, *options, STEPCAST, *LONG, "-o", out], cwd=ROOT, stdout=subprocess.DEVNULL,
                              stderr=stderr, text=True)
    wait_for_points(out, 20)
    return mpirun


@pytest.fixture(scope="module")
def long_one(tmp_path_factory):
    folder = tmp_path_factory.mktemp("long")
    assert stepcast(*LONG, "-o", folder / "long.json").returncode == 0
    return (folder / "long.json").read_bytes()


def rank_process(mpirun, rank):
    """mpirun starts those of this machine itself."""
    children = Path(f"/proc/{mpirun}/task/{mpirun}/children").read_text().split()
    return next(int(pid) for pid in children
                if f"OMPI_COMM_WORLD_RANK={rank}\0".encode() in Path(f"/proc/{pid}/environ").read_bytes())


def children_of(pid):
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@needs_mpi
@needs_mpirun
@pytest.mark.parametrize("jobs", [[], ["--jobs", "2"]])
def test_mpirun_makes_the_same_files(jobs, tmp_path):
    local = stepcast(*SWEEP, *outputs(tmp_path, "local"), "--trace", tmp_path / "local.trace")
    done = run(*MPIRUN, "-n", 3, STEPCAST, *SWEEP, *outputs(tmp_path, "mpi"), "--trace", tmp_path / "mpi.trace", *jobs)
    assert (done.returncode, done.stdout) == (0, local.stdout), done.stderr
    assert_same(tmp_path, "local", "mpi", ("json", "csv", "trace"))
    assert len(list(tmp_path.iterdir())) == 6


@needs_mpi
@needs_mpirun
def test_a_rank_that_is_killed_changes_nothing(tmp_path, long_one):
    out = tmp_path / "out.json"
    mpirun = long_run(out, "--enable-recovery", "-n", "3", stderr=subprocess.PIPE)
    killed = rank_process(mpirun.pid, 1)
    servers = children_of(killed)
    assert servers
    os.kill(killed, signal.SIGKILL)
    said = mpirun.communicate(timeout=120)[1]
    assert mpirun.returncode == 0, said
    assert any(line.startswith("stepcast: rank 1 on ") and "is silent" in line for line in said.splitlines()), said
    assert out.read_bytes() == long_one
    for pid in servers:  # nothing of the dead one lives on
        assert not Path(f"/proc/{pid}").exists() or Path(f"/proc/{pid}/stat").read_text().split()[2] == "Z"


@needs_mpi
@needs_mpirun
def test_a_rank_that_loses_what_simulates_changes_nothing(tmp_path, long_one):
    out = tmp_path / "out.json"
    mpirun = long_run(out, "-n", "2")
    for pid in children_of(rank_process(mpirun.pid, 1)):
        if b"libmpi" in Path(f"/proc/{pid}/maps").read_bytes():
            os.kill(pid, signal.SIGKILL)
    assert mpirun.wait(timeout=120) == 0
    assert out.read_bytes() == long_one


@needs_mpi
@needs_mpirun
def test_what_a_killed_mpirun_left_is_taken_over(tmp_path, long_one):
    # Without --enable-recovery the death of a rank is the end of all of them.
    out = tmp_path / "out.json"
    mpirun = long_run(out, "-n", "3")
    os.kill(rank_process(mpirun.pid, 2), signal.SIGKILL)
    assert mpirun.wait(timeout=60) != 0
    assert not out.exists()
    assert run(*MPIRUN, "-n", 2, STEPCAST, *LONG, "-o", out, "--resume").returncode == 0
    assert out.read_bytes() == long_one


@needs_mpi
@needs_mpirun
def test_a_mistake_is_told_once(tmp_path):
    done = run(*MPIRUN, "-n", 3, STEPCAST, *SWEEP, "--set", "cluster.gpus=0", "-o", tmp_path / "x.json")
    alone = stepcast(*SWEEP, "--set", "cluster.gpus=0", "-o", tmp_path / "x.json")
    assert done.returncode == alone.returncode == 2
    assert ours(done) == ours(alone) and len(ours(alone)) == 1
    done = run(*MPIRUN, "-n", 2, STEPCAST, *SWEEP, "-o", tmp_path / "none" / "x.json")
    assert done.returncode == 2 and len(ours(done)) == 1 and "cannot write" in ours(done)[0]
    assert list(tmp_path.iterdir()) == []


@needs_mpi
@needs_mpirun
def test_ranks_that_read_different_things_are_refused(tmp_path):
    one = [STEPCAST, *SWEEP, "-o", tmp_path / "x.json"]
    done = run(*MPIRUN, "-n", 1, *one, ":", "-n", 1, *one, "--set", "training.micro_batch=16")
    host = os.uname().nodename
    assert done.returncode == 2
    assert ours(done) == [f"stepcast: rank 1 on {host}: has read other inputs, or is of another version, than rank 0"]
    done = run(*MPIRUN, "-n", 1, *one, ":", "-n", 1, *one, "--set", "training.micro_batch=-1")
    assert done.returncode == 2 and len(ours(done)) == 1
    assert ours(done)[0].startswith("stepcast: rank 1: --set training.micro_batch: must be")
    assert not (tmp_path / "x.json").exists()


@pytest.mark.skipif(b"libmpi.so" in STEPCAST.read_bytes(), reason="built with MPI")
def test_without_mpi_mpirun_is_refused():
    for rank, lines in ((0, 1), (1, 0)):
        done = run(STEPCAST, *SWEEP, env=os.environ | {"OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": str(rank)})
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (3, "", lines)


# ---------------------------------------------------------------------------- several machines


@needs_mpi
@needs_mpirun
def test_three_hosts_one_of_which_dies(tmp_path, long_one):
    spec = importlib.util.spec_from_file_location("namespaces", ROOT / "tests/validation/namespaces.py")
    namespaces = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(namespaces)
    if os.geteuid() != 0 or not all(map(shutil.which, ("ip", "tc", "unshare"))):
        pytest.skip("network namespaces need root, ip, tc and unshare")
    with contextlib.ExitStack() as stack:
        try:
            network = namespaces.Network(3, 100, stack)
        except namespaces.Lacking as lacking:
            pytest.skip(str(lacking))
        agent = tmp_path / "agent"  # what mpirun takes for ssh
        agent.write_text(f'#!/bin/sh\nhost=${{1##*.}}\nshift\nexec ip netns exec {network.prefix}$host unshare --uts sh -c '
                         '"hostname host$host; $*"\n')
        agent.chmod(0o755)
        subnet = f"{namespaces.SUBNET}.0/24"
        options = {"plm_rsh_agent": agent, "plm_rsh_no_tree_spawn": 1, "oob_tcp_if_include": subnet, "btl": "tcp,self",
                   "btl_tcp_if_include": subnet}
        hosts = ",".join(f"{namespaces.SUBNET}.{i}:1" for i in (1, 2, 3))
        out = tmp_path / "out.json"
        command = ["mpirun", "--allow-run-as-root", "--enable-recovery", "--host", hosts, "-n", "3",
                   *(str(word) for key, value in options.items() for word in ("--mca", key, value)),
                   str(STEPCAST), *LONG, "-o", str(out)]
        mpirun = subprocess.Popen(["ip", "netns", "exec", f"{network.prefix}1", "unshare", "--uts", "sh", "-c",
                                   'hostname host1; exec "$@"', "sh", *command], cwd=ROOT, stdout=subprocess.DEVNULL,
                                  stderr=subprocess.PIPE, text=True)
        wait_for_points(out, 20)
        for pid in run("ip", "netns", "pids", f"{network.prefix}2").stdout.split():
            with contextlib.suppress(ProcessLookupError):  # the child of a point that is done
                os.kill(int(pid), signal.SIGKILL)
        said = mpirun.communicate(timeout=120)[1]
    assert mpirun.returncode == 0, said
    assert any(line.startswith("stepcast: rank 1 on host2 is silent") for line in said.splitlines()), said
    assert out.read_bytes() == long_one
