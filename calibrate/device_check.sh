#!/usr/bin/env bash
# Measures a machine with one GPU and no network, and looks whether the numbers can be true.
#
#   calibrate/device_check.sh [PROGRAM]
#
# PROGRAM is build/calibrate/stepcast-calibrate, which is built first where it is missing. The
# calibration, and what the program says, go to $OUT, or to a temporary folder.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

program=${1:-build/calibrate/stepcast-calibrate}
out=${OUT:-$(mktemp -d)}
calibration=$out/calibration.json

# cuBLAS, cuDNN and NCCL may have come with Python packages only.
libraries=$(python3 - <<'PYTHON' || true
import glob, sys
roots = [p for p in sys.path if p.endswith("-packages")]
print(":".join(sorted({f.rsplit("/", 1)[0] for r in roots for f in glob.glob(r + "/nvidia/*/lib/lib*")})))
PYTHON
)
export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:-}${LD_LIBRARY_PATH:+:}/usr/local/nvidia/lib64${libraries:+:}$libraries

if [[ ! -x $program ]]; then
  cmake --preset calibrate
  cmake --build --preset calibrate --target stepcast-calibrate
fi

echo "### the machine"
nvidia-smi --query-gpu=name,driver_version,clocks.sm,temperature.gpu,memory.used --format=csv || true
ldd "$program" | grep -E 'cublas|nccl|not found' || true
"$program" --devices

echo "### measuring, for at most 220 s"
rm -f "$calibration" "$calibration.partial"
status=0
time timeout 220 "$program" --platform platforms/h200_8gpu.json -o "$calibration" --quick > "$out/log.txt" 2>&1 ||
  status=$?
tail -n 20 "$out/log.txt"
if ((status == 124)) && [[ -s $calibration.partial ]]; then
  echo "not finished in time; what there is:"
  tail -n 5 "$calibration.partial"
fi
((status == 0)) || { echo "FAILED: exit code $status"; exit "$status"; }

python3 - "$calibration" <<'PYTHON'
import json, sys

file = json.load(open(sys.argv[1]))
print("### versions", file["versions"])
for warning in file.get("warnings", []):
    print("warning:", warning)
for skipped in file.get("skipped", []):
    print("skipped:", skipped)

# Dense bf16 FLOP/s and bytes/s of memory on the data sheets.
sheets = {"H200": (989e12, 4.8e12), "H100 PCIe": (756e12, 2.0e12), "H100": (989e12, 3.35e12),
          "A100": (312e12, 2.04e12), "B200": (2250e12, 8e12), "L40S": (362e12, 0.864e12)}
gpu = file["versions"].get("gpu", "")
flops, bandwidth = next((v for k, v in sheets.items() if k in gpu), (3e15, 10e12))
known = any(k in gpu for k in sheets)

moved = {"copy": 2, "add": 3, "layer_norm": 2, "reduction": 1,
         "host_to_device": 1, "device_to_host": 1}
failures = 0


def check(what, value, least, most, unit):
    global failures
    good = least <= value <= most
    failures += not good
    print(f"{'ok    ' if good else 'FAILED'} {what}: {value:.4g} {unit}, "
          f"plausible {least:.4g} to {most:.4g}")


def multiplications(case):
    """Of an attention or a convolution, of which each pass multiplies equally often."""
    if case["kernel"] == "attention":
        return 2 * case["batch"] * case["heads"] * case["sequence_length"] ** 2 * case["head_size"]
    height, width = ((case[side] + 2 * case["padding"] - case["filter_size"]) // case["stride"] + 1
                     for side in ("height", "width"))
    return (case["batch"] * case["out_channels"] * height * width * case["in_channels"] * case["filter_size"] ** 2)


seen = set()
print("### compute")
for case in file["compute"]:
    kernel, time_s = case["kernel"], case["time_s"]
    text = " ".join(str(v) for k, v in case.items() if k in ("kernel", "dtype", "m", "n", "k", "bytes"))
    text += " cold" * bool(case.get("cold_cache"))
    if kernel == "gemm":
        rate = 2 * case["m"] * case["n"] * case["k"] / time_s
        print(f"{text}: {time_s * 1e6:.2f} us, {rate / 1e12:.1f} TFLOP/s")
        if case["dtype"] == "bfloat16" and case["m"] == case["n"] == case["k"] == 4096:
            seen.add("gemm")
            check("bf16 gemm of 4096", rate / 1e12, (0.4 if known else 0.003) * flops / 1e12,
                  1.02 * flops / 1e12, "TFLOP/s")
    elif kernel in moved:
        rate = moved[kernel] * case["bytes"] / time_s
        print(f"{text}: {time_s * 1e6:.2f} us, {rate / 1e9:.1f} GB/s")
        # --quick ends at 256 MiB, which is far more than any L2 cache.
        if kernel == "copy" and case["bytes"] >= 256 << 20:
            seen.add("copy")
            check(f"copy of {case['bytes'] >> 20} MiB", rate / 1e9,
                  (0.6 if known else 0.01) * bandwidth / 1e9, 1.02 * bandwidth / 1e9, "GB/s")
    elif kernel == "attention" or kernel.startswith("convolution_"):
        seen.add(kernel)
        shape = " ".join(f"{k}={v}" for k, v in case.items() if k in (
            "layout", "batch", "in_channels", "height", "out_channels", "filter_size", "stride", "heads",
            "sequence_length", "head_size"))
        # The program has compared some elements with what the CPU makes of them in double precision.
        if not case.get("correct"):
            print(f"FAILED {text} {shape}: left wrong numbers")
            failures += 1
        check(f"{text} {shape}: {time_s * 1e6:.1f} us",
              2 * multiplications(case) / time_s / 1e12, 1e-4 * flops / 1e12, 1.02 * flops / 1e12, "TFLOP/s")
    else:
        print(f"{text}: {time_s * 1e6:.3f} us")
        if kernel == "empty_kernel":
            check("launch of an empty kernel", time_s * 1e6, 0.5, 20, "us")
        if kernel == "empty_graph_node":
            check("empty graph node", time_s * 1e6, 0.2, 5, "us")
for sample in file["samples"]:
    print(sample)
    failures += not sample.get("correct", True)
expected = {"gemm", "copy", "attention"}
if "cudnn" in file["versions"]:
    expected |= {"convolution_forward", "convolution_backward_data", "convolution_backward_filter"}
else:
    print("no cuDNN, so no convolutions")
for missing in expected - seen:
    print("FAILED no", missing, "was measured")
    failures += 1
sys.exit(failures > 0)
PYTHON
echo "### plausible"
