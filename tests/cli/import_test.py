"""stepcast import kineto and stepcast trace, on made-up traces whose figures stand in the test, and on real ones."""

import gzip
import json
import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
STEPCAST = os.environ.get("STEPCAST", str(ROOT / "build/release/stepcast"))
TRACES = Path(os.environ.get("STEPCAST_DATA", ROOT.parent / "shared/data")) / "traces"
HTA = "facebookresearch+HolisticTraceAnalysis/"
needs_traces = pytest.mark.skipif(not TRACES.is_dir(), reason="no ../shared/data")

MAIN, AUTOGRAD = 100, 200  # threads
COMPUTE, NCCL = 7, 40  # streams
ACCUMULATE = "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad"
ELEMENTS = 4096


class Trace:
    """Times in us."""

    def __init__(self, world_size=1, rank=0, steps=True):
        self.events = []
        self.distributed = {"backend": "nccl", "rank": rank, "world_size": world_size}
        self.correlation = 0
        self.with_steps = steps

    def host(self, category, name, ts, dur, thread=MAIN, **args):
        self.events.append({"ph": "X", "cat": category, "name": name, "pid": 1, "tid": thread, "ts": ts, "dur": dur,
                            "args": args})

    def kernel(self, op, launch, start, dur, thread=MAIN, stream=COMPUTE, name="a_kernel", dims=None):
        """An operator that launches one kernel."""
        self.correlation += 1
        args = {"Input Dims": dims} if dims else {}
        self.host("cpu_op", op, launch - 0.5, 6, thread, **args)
        self.host("cuda_runtime", "cudaLaunchKernel", launch, 4, thread, correlation=self.correlation)
        self.gpu(name, start, dur, stream)

    def gpu(self, name, start, dur, stream):
        self.events.append({"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": stream, "ts": start, "dur": dur,
                            "args": {"device": 0, "stream": stream, "correlation": self.correlation}})

    def all_reduce(self, launch, start, dur):
        self.correlation += 1
        self.host("cpu_op", "record_param_comms", launch - 0.5, 6, AUTOGRAD,
                  **{"Collective name": "allreduce", "In msg nelems": ELEMENTS, "dtype": "Float"})
        self.host("cuda_runtime", "cudaLaunchKernel", launch, 4, AUTOGRAD, correlation=self.correlation)
        self.gpu("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgs)", start, dur, NCCL)

    def step(self, number, begin, length):
        if self.with_steps:
            self.host("user_annotation", f"ProfilerStep#{number}", begin, length)
        self.host("user_annotation", "Optimizer.step#SGD.step", begin + 228, 20)

    def document(self):
        return {"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "Made-up GPU"}],
                "distributedInfo": self.distributed, "traceEvents": self.events}

    def write(self, path):
        text = json.dumps(self.document())
        if path.suffix == ".gz":
            path.write_bytes(gzip.compress(text.encode()))
        else:
            path.write_text(text)
        return path


def host_bound(trace, begin=0.0, steps=4, length=400):
    """Each kernel starts 5 us after its launch, when the one before it has ended long ago; only
    the gradient's own (AccumulateGrad) follows at once."""
    for number in range(steps):
        t = begin + number * length
        trace.kernel("aten::linear", t + 1, t + 6, 10, dims=[[16, 64], [64, 64]])
        trace.kernel("aten::relu", t + 101, t + 106, 10)
        trace.kernel("autograd::engine::evaluate_function: AddmmBackward0", t + 201, t + 206, 10, AUTOGRAD)
        trace.kernel(ACCUMULATE, t + 210, t + 216, 10, AUTOGRAD)
        trace.host("cpu_op", "torch::autograd::AccumulateGrad", t + 210, 1, AUTOGRAD, **{"Input Dims": [[64, 64]]})
        trace.kernel("aten::_foreach_add_", t + 231, t + 236, 10)
        trace.step(number, t, length)
    return trace


def stepcast(*arguments):
    return subprocess.run([STEPCAST, *map(str, arguments)], capture_output=True, text=True, cwd=ROOT)


def imported(tmp_path, *files, **settings):
    sets = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    done = stepcast("import", "kineto", *files, "-o", tmp_path / "model.json", *sets)
    assert done.returncode == 0, done.stderr
    return json.loads((tmp_path / "model.json").read_text()), done.stderr


def refused(tmp_path, *files, **settings):
    sets = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    done = stepcast("import", "kineto", *files, "-o", tmp_path / "refused.json", *sets)
    assert (done.returncode, done.stdout) == (2, ""), done
    assert done.stderr.count("\n") == 1, done.stderr
    assert not (tmp_path / "refused.json").exists()
    return done.stderr.removeprefix("stepcast: ").rstrip("\n")


def spans(model, phase, *keys):
    return [tuple(span.get(key) for key in keys) for span in model["measured"][0][phase]]


def microseconds(value):
    return pytest.approx(value * 1e-6, abs=1e-9)


def test_a_late_host_is_host_time_and_no_gap_of_the_gpu(tmp_path):
    model, stderr = imported(tmp_path, host_bound(Trace()).write(tmp_path / "trace.json"))
    us = microseconds
    keys = ("name", "gap_s", "duration_s", "host_s")
    assert spans(model, "forward", *keys) == [("aten::linear", 0, us(10), us(100)), ("aten::relu", 0, us(10), us(100))]
    assert spans(model, "backward", *keys, "gradients") == [
        ("AddmmBackward0", 0, us(20), us(30), ["gradient_0"])]
    assert spans(model, "optimizer", *keys) == [("aten::_foreach_add_", 0, us(10), us(170))]
    assert model["parameters"] == [{"name": "gradient_0", "elements": ELEMENTS, "dtype": "float32"}]
    assert model["measured"][0]["micro_batch"] == 16
    assert model["measured"][0]["steps"] == 3  # the first has nothing before it
    assert model["measured"][0]["step_time_s"] == {"median": us(400), "min": us(400), "max": us(400)}
    assert model["optimizer"] == {"name": "SGD", "state_bytes_per_element": 0}
    assert model["gpu"] == "Made-up GPU"
    assert "0.400 ms alone on one GPU, measured 0.400 ms" in stderr
    assert "dropped ProfilerStep#0" in stderr


def test_a_gap_that_the_host_did_not_make_belongs_to_the_gpu(tmp_path):
    trace = Trace()
    for number in range(4):  # all launched 200 us before they run; 3 us before each but AccumulateGrad's
        t, gpu = number * 400, number * 400 + 300
        trace.kernel("aten::linear", t + 1, gpu + 3, 97, dims=[[16, 64], [64, 64]])
        trace.kernel("autograd::engine::evaluate_function: AddmmBackward0", t + 11, gpu + 103, 97, AUTOGRAD)
        trace.kernel(ACCUMULATE, t + 21, gpu + 202, 98, AUTOGRAD)  # 2 us inside a span
        trace.host("cpu_op", "torch::autograd::AccumulateGrad", t + 21, 1, AUTOGRAD, **{"Input Dims": [[64, 64]]})
        trace.kernel("aten::_foreach_add_", t + 231, gpu + 303, 97)
        trace.step(number, t, 400)
    model, _ = imported(tmp_path, trace.write(tmp_path / "trace.json"))
    us = microseconds
    assert spans(model, "forward", "gap_s", "duration_s") == [(us(3), us(97))]
    assert spans(model, "backward", "gap_s", "duration_s") == [(us(3), us(197))]
    assert spans(model, "optimizer", "gap_s", "duration_s") == [(us(3), us(97))]


def waiting_for_nccl(trace, begin=0.0, arrives=216.0, steps=4):
    """The optimizer's kernel waits for an AllReduce that ends at 995; the host waits for the kernel."""
    for number in range(steps):
        t = begin + number * 1200
        trace.kernel("aten::linear", t + 1, t + 6, 10, dims=[[16, 64], [64, 64]])
        trace.kernel("autograd::engine::evaluate_function: AddmmBackward0", t + 101, t + 106, 10, AUTOGRAD)
        trace.kernel(ACCUMULATE, t + 110, t + 116, 10, AUTOGRAD)
        trace.host("cpu_op", "torch::autograd::AccumulateGrad", t + 110, 1, AUTOGRAD, **{"Input Dims": [[64, 64]]})
        trace.all_reduce(t + 122, t + arrives, 995 - arrives)
        trace.kernel("aten::_foreach_add_", t + 231, t + 1000, 10)
        trace.host("cuda_runtime", "cudaStreamSynchronize", t + 241, 770)
        trace.step(number, t, 1200)
    return trace


def test_waiting_for_nccl_is_cut_out(tmp_path):
    model, stderr = imported(tmp_path, waiting_for_nccl(Trace(world_size=2)).write(tmp_path / "trace.json"))
    us = microseconds
    # From the launch at 231 to the next step's first, without the 770 us in which the host waited.
    assert spans(model, "optimizer", "gap_s", "duration_s", "host_s", "host_waits") == [(0, us(10), us(200), True)]
    assert spans(model, "backward", "gap_s", "duration_s", "host_s") == [(0, us(20), us(130))]
    assert "0.430 ms alone on one GPU, measured 1.200 ms" in stderr  # 100 + 130 + 200
    assert "1 AllReduces carry the 4096 elements of the gradients" in stderr
    assert "collective 0, all_reduce, 16384 B: 0.779 ms with waiting for other ranks" in stderr
    assert "0.779 ms NCCL of which 0.779 ms exposed" in stderr


def test_ranks_tell_waiting_from_transfer(tmp_path):
    first = waiting_for_nccl(Trace(2, 0)).write(tmp_path / "rank0.json")
    later = waiting_for_nccl(Trace(2, 1), begin=5000.0, arrives=516.0).write(tmp_path / "rank1.json")
    model, stderr = imported(tmp_path, first, later)
    assert ("collective 0, all_reduce, 16384 B: 0.479 ms after the last arrival, which is 0.300 ms behind the first"
            in stderr)
    assert model["measured"][0]["steps"] == 6
    assert "is rank 0 a second time" in refused(tmp_path, first, first)
    alone = host_bound(Trace(1, 1)).write(tmp_path / "alone.json")
    assert "not one run" in refused(tmp_path, first, alone)


def test_the_collectives_of_all_ranks_make_a_calibration(tmp_path):
    first = waiting_for_nccl(Trace(2, 0)).write(tmp_path / "rank0.json")
    later = waiting_for_nccl(Trace(2, 1), arrives=516.0).write(tmp_path / "rank1.json")
    made = ["--platform", "platforms/dgx1v.json", "--calibration", tmp_path / "made.json"]
    done = stepcast("import", "kineto", first, later, "-o", tmp_path / "model.json", *made)
    assert done.returncode == 0, done.stderr
    [sample] = json.loads((tmp_path / "made.json").read_text())["samples"]
    assert (sample["operation"], sample["ranks"], sample["nodes"], sample["bytes"]) == ("all_reduce", 2, 1, 16384)
    assert sample["time_s"] == pytest.approx(0.479e-3, abs=1e-6)  # from the last arrival
    row = stepcast("collective", "--platform", "platforms/dgx1v.json", "--gpus", "2", "--bytes", "16384",
                   "--calibration", tmp_path / "made.json", "--json", "-")
    [predicted] = json.loads(row.stdout)["rows"]
    assert predicted["time_s"] == pytest.approx(sample["time_s"], rel=1e-6)
    assert predicted["basis"] == "measured"

    (tmp_path / "made.json").unlink()
    done = stepcast("import", "kineto", first, "-o", tmp_path / "other.json", *made)
    assert (done.returncode, done.stderr.splitlines()[-1].split(",")[0]) == (
        2, "stepcast: --calibration: needs the traces of all ranks")
    assert not (tmp_path / "made.json").exists() and not (tmp_path / "other.json").exists()
    done = stepcast("import", "kineto", first, later, "-o", tmp_path / "model.json", *made[2:])
    assert done.stderr == "stepcast: --calibration: needs --platform: the machine that was recorded\n"


def test_a_packed_trace_is_the_same(tmp_path):
    plain, _ = imported(tmp_path, host_bound(Trace()).write(tmp_path / "trace.json"))
    packed, _ = imported(tmp_path, host_bound(Trace()).write(tmp_path / "trace.json.gz"))
    assert plain["measured"] == packed["measured"]
    whole = (tmp_path / "trace.json.gz").read_bytes()
    (tmp_path / "cut.json.gz").write_bytes(whole[: len(whole) // 2])
    assert "gzip data is cut off or damaged" in refused(tmp_path, tmp_path / "cut.json.gz")


def test_times_since_1970_keep_their_nanoseconds(tmp_path):
    text = json.dumps(host_bound(Trace()).document())
    document = json.loads(text)
    for event in document["traceEvents"]:
        event["ts"] = f"@{1_712_195_495_520_000_000 + round(1000 * event['ts']) + 125}@"
    text = json.dumps(document)
    for event in document["traceEvents"]:
        ns = event["ts"].strip("@")
        text = text.replace(f'"{event["ts"]}"', f"{ns[:-3]}.{ns[-3:]}")
    (tmp_path / "absolute.json").write_text(text)
    absolute, _ = imported(tmp_path, tmp_path / "absolute.json")
    relative, _ = imported(tmp_path, host_bound(Trace()).write(tmp_path / "trace.json"))
    assert absolute["measured"] == relative["measured"]


def test_steps_without_annotations_are_found_by_repetition(tmp_path):
    trace = host_bound(Trace(steps=False), steps=6)
    trace.events = [event for event in trace.events if event["name"] != "Optimizer.step#SGD.step"]
    for number, event in enumerate(e for e in trace.events if e["cat"] == "kernel"):
        event["name"] = f"kernel_{number % 5}"
    model, stderr = imported(tmp_path, trace.write(tmp_path / "trace.json"))
    assert "by repetition of the sequence of kernels" in stderr
    assert model["measured"][0]["step_time_s"]["median"] == microseconds(400)
    assert len(model["measured"][0]["backward"]) == 1
    once = Trace()
    once.events = trace.events[: len(trace.events) // 6]
    assert "once.json: no steps: neither ProfilerStep annotations" in refused(tmp_path, once.write(tmp_path / "once.json"))


def test_overlapping_kernels_are_counted_once(tmp_path):
    trace = host_bound(Trace())
    for event in trace.events:
        if event["cat"] == "kernel" and event["ts"] % 400 == 206:
            event["dur"] = 15  # AccumulateGrad's starts at 216, 5 us before it ends
    model, stderr = imported(tmp_path, trace.write(tmp_path / "trace.json"))
    assert spans(model, "backward", "duration_s") == [(microseconds(20),)]
    assert "kernels overlap on the compute stream for 9.1 % of its time" in stderr  # 5 of 55


def test_negative_durations(tmp_path):
    trace = host_bound(Trace())
    kernel = next(event for event in trace.events if event["cat"] == "kernel")
    kernel["dur"] = -3
    problem = refused(tmp_path, trace.write(tmp_path / "trace.json"))
    assert problem.endswith('trace.json: event 3 ("a_kernel") has a negative duration, -3 us')
    kernel["dur"] = 10
    trace.host("cpu_op", "aten::backwards", 50, -1)
    _, stderr = imported(tmp_path, trace.write(tmp_path / "trace.json"))
    assert "1 host events end before they start and are left out" in stderr


def test_two_ranks_without_communication_are_doubted(tmp_path):
    _, stderr = imported(tmp_path, host_bound(Trace(world_size=2)).write(tmp_path / "trace.json"))
    assert "warning: a run of 2 ranks without communication on the GPU" in stderr


def test_other_parallelism_is_named(tmp_path):
    trace = waiting_for_nccl(Trace(world_size=2))
    for event in trace.events:
        if event["args"].get("Collective name"):
            event["args"]["Collective name"] = "all_to_all"
    _, stderr = imported(tmp_path, trace.write(tmp_path / "trace.json"))
    assert "warning: not plain data parallelism: 4 all_to_all collectives are left out of the program" in stderr


def test_work_that_belongs_to_no_step_is_reported_as_a_share(tmp_path):
    trace = host_bound(Trace())
    trace.correlation = 10**6  # launched by a call that is not in the trace
    trace.gpu("a_kernel", 5000, 50, COMPUTE)
    _, stderr = imported(tmp_path, trace.write(tmp_path / "trace.json"))
    # 50 of 4 x 50 + 50
    assert "warning: " + str(tmp_path / "trace.json") + ": 20.0 % of the compute stream's time belongs to no step" in stderr


def test_refuses_what_it_cannot_tell(tmp_path):
    def without(key):
        trace = host_bound(Trace())
        for event in trace.events:
            if event["name"].startswith(key):
                event["args"].pop("Input Dims", None)
        return trace.write(tmp_path / "trace.json")

    assert refused(tmp_path, without("aten::linear")).endswith("give --set micro_batch=N")
    assert imported(tmp_path, without("aten::linear"), micro_batch=8)[0]["measured"][0]["micro_batch"] == 8
    assert "how large 1 of its 1 gradients are; give --set parameters=FILE" in refused(
        tmp_path, without("torch::autograd"))
    assert refused(tmp_path, without("x"), micro_batches=8).startswith("--set micro_batches: is no setting")
    assert refused(tmp_path, without("x"), micro_batch="many").startswith("--set micro_batch: must be")
    kernels = host_bound(Trace())
    kernels.events = [event for event in kernels.events if event["cat"] != "kernel"]
    assert "holds no kernels" in refused(tmp_path, kernels.write(tmp_path / "trace.json"))
    (tmp_path / "trace.json").write_text('{"traceEvents": [')
    assert "trace.json: not JSON at byte" in refused(tmp_path, tmp_path / "trace.json")
    assert "no such file" in refused(tmp_path, tmp_path / "nowhere.json")
    inference = host_bound(Trace())
    inference.events = [event for event in inference.events if event["tid"] != AUTOGRAD]
    assert "no step has an AccumulateGrad operator" in refused(tmp_path, inference.write(tmp_path / "trace.json"))


def test_gradient_accumulation_is_refused(tmp_path):
    trace = host_bound(Trace(steps=False), steps=8)
    trace.events = [event for event in trace.events if not event["name"].startswith("Optimizer")]
    for number in range(4):
        trace.with_steps = True
        trace.host("user_annotation", f"ProfilerStep#{number}", number * 800, 800)
    assert "a step has 2 backward passes (gradient accumulation)" in refused(
        tmp_path, trace.write(tmp_path / "trace.json"))


def test_parameters_get_names_from_a_table(tmp_path):
    table, _ = imported(tmp_path, host_bound(Trace()).write(tmp_path / "trace.json"))
    table["parameters"][0]["name"] = "fc.weight"
    table["measured"][0]["backward"][0]["gradients"] = ["fc.weight"]
    (tmp_path / "table.json").write_text(json.dumps(table))
    model, _ = imported(tmp_path, tmp_path / "trace.json", parameters=tmp_path / "table.json")
    assert model["parameters"][0]["name"] == "fc.weight"
    table["parameters"][0]["elements"] = 5
    (tmp_path / "table.json").write_text(json.dumps(table))
    assert "has no parameter left of 4096 elements" in refused(
        tmp_path, tmp_path / "trace.json", parameters=tmp_path / "table.json")


def test_trace_show_and_check(tmp_path):
    shown = stepcast("trace", "show", "models/resnet50_v100_fp32.json")
    assert shown.returncode == 0
    assert "161 parameters, 25557032 elements, 97.49 MiB of gradients" in shown.stdout
    assert shown.stdout.count("^ bucket") == 5
    checked = stepcast("trace", "check", "models/resnet50_v100_fp32.json")
    assert (checked.returncode, checked.stderr) == (0, "")
    checked = stepcast("trace", "check", host_bound(Trace()).write(tmp_path / "trace.json"))
    assert checked.returncode == 0 and "4 steps by ProfilerStep annotations" in checked.stdout
    (tmp_path / "broken.json").write_text('{"format": "stepcast.trace/1"}')
    checked = stepcast("trace", "check", tmp_path / "broken.json")
    assert (checked.returncode, checked.stdout) == (2, "")
    assert "kineto" in stepcast("list", "importers").stdout


# Real traces -----------------------------------------------------------------------------------------------------------

# Largest difference of a replay on one GPU to the measured step; None: other ranks' part of it is not known here.
REAL = {
    HTA + "ns_resolution_trace_rank-0.Apr_03_18_51_38.1102.pt.trace.json.gz": 0.01,
    HTA + "nccl_parser_config_nccl_data.json.gz": None,
    HTA + "df_index_resolver_df_index_resolver.json.gz": None,
    HTA + "trace_diff_control_control.json.gz": None,
    HTA + "negative_queue_length_values_check_rank0.json.gz": None,
    "AMD-AGI+TraceLens/resnet_act_checkpoint.json.gz": None,
    "pytorch+kineto/num_workers_0_a.json.gz": 0.03,
    "pytorch+kineto/num_workers_0_b.json.gz": 0.03,
    "facebookresearch+param/linear_kineto.json.gz": 0.03,
}


@needs_traces
@pytest.mark.parametrize("name", REAL)
def test_a_real_trace_becomes_a_step_that_takes_as_long(name, tmp_path):
    model, stderr = imported(tmp_path, TRACES / name, micro_batch=32)
    line = next(line for line in stderr.splitlines() if " alone on one GPU, measured " in line)
    replayed = float(line.split(": ")[2].split()[0])
    measured = float(line.split("measured ")[1].split()[0])
    if REAL[name] is None:
        assert replayed < measured  # collectives are cut out
    else:
        assert replayed == pytest.approx(measured, rel=REAL[name])
    assert stepcast("trace", "check", tmp_path / "model.json").returncode == 0


@needs_traces
def test_real_traces_that_are_refused(tmp_path):
    assert "how large 62 of its 62 gradients" in refused(
        tmp_path, TRACES / "facebookresearch+param/resnet_kineto.json.gz", micro_batch=32)
    assert "holds no traceEvents" in refused(tmp_path, TRACES / "facebookresearch+param/resnet_2gpu_et.json.gz")


@needs_traces
@pytest.mark.parametrize("name", ["nccl_parser_config_nccl_data.json.gz",
                                  "ns_resolution_trace_rank-0.Apr_03_18_51_38.1102.pt.trace.json.gz"])
def test_busy_times_are_those_of_the_summary(name):
    summary = next(s for s in json.loads((TRACES / "summary.json").read_text()) if s["file"].endswith(name))
    lines = [line.split() for line in stepcast("trace", "check", TRACES / (HTA + name)).stdout.splitlines()
             if line.startswith("ProfilerStep#")]
    computing = sum(float(line[3]) for line in lines) / len(lines)
    expected = (summary["mean"]["compute_busy_us"] + summary["mean"]["memop_busy_us"]) * 1e-3
    assert computing == pytest.approx(expected, rel=0.02)


@needs_traces
def test_all_eight_ranks_of_dlrm(tmp_path):
    ranks = sorted((TRACES / "facebookresearch+param/dlrm_kineto").glob("*.gz"))
    _, stderr = imported(tmp_path, *ranks, micro_batch=32)
    assert "not plain data parallelism: 40 all_to_all" in stderr
    skews = json.loads((TRACES / "facebookresearch+param/dlrm_collectives_by_rank.json").read_text())["collectives"]
    told = [line for line in stderr.splitlines() if line.startswith("stepcast: collective ")]
    assert len(told) == len(skews) == 8
    for line, expected in zip(told, skews):
        words = line.split(": ")[2].split()
        assert float(words[0]) == pytest.approx(expected["min_dur_us"] * 1e-3, abs=5e-4)
        assert float(words[-5]) == pytest.approx(expected["arrival_skew_us"] * 1e-3, abs=5e-3)

    # What the trace says of the machine gives the AllReduces back, to 10 % at the end of each after its last arrival.
    made = tmp_path / "made.json"
    done = stepcast("import", "kineto", *ranks, "-o", tmp_path / "m.json", "--set", "micro_batch=32", "--calibration",
                    made, "--platform", "platforms/dgx1v.json")
    assert done.returncode == 0, done.stderr
    reduced = {1576964: 86e-6, 448: 20e-6, 907840: 69e-6}
    row = stepcast("collective", "--platform", "platforms/dgx1v.json", "--gpus", "8", "--bytes",
                   ",".join(map(str, reduced)), "--calibration", made, "--json", "-")
    for predicted in json.loads(row.stdout)["rows"]:
        assert predicted["time_s"] == pytest.approx(reduced[predicted["bytes"]], rel=0.1)
