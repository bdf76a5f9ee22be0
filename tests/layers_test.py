"""A folder of sim/ includes only itself and folders above it; heavy headers stay in their files."""

import re
from pathlib import Path

SIM = Path(__file__).resolve().parent.parent / "sim"
LAYERS = ["base", "input", "workload", "fit", "collective", "engine", "result", "report", "cli"]
ONLY_IN = {  # header -> the files that may include it
    r"simgrid/|xbt/": {"engine/simgrid_network.cpp"},
    r"nlohmann/json\.hpp": {"base/json_events.cpp", "base/json_view.cpp", "report/json_report.cpp"},
    r"Eigen/": {"fit/figures.cpp", "fit/regimes.cpp"},
    r"boost/": {"cli/options.cpp"},
}
INCLUDE = re.compile(r'^\s*#include\s+[<"]([^>"]+)[>"]', re.MULTILINE)


def violations(sim: Path) -> list[str]:
    found = []
    for path in sorted(sim.rglob("*.[ch]pp")):
        name = path.relative_to(sim).as_posix()
        layer = LAYERS.index(name.split("/")[0])
        for header in INCLUDE.findall(path.read_text()):
            folder = header.split("/")[0]
            if folder in LAYERS and LAYERS.index(folder) > layer:
                found.append(f"{name} includes {header}, which is further down")
            for pattern, files in ONLY_IN.items():
                if re.match(pattern, header) and name not in files:
                    found.append(f"{name} includes {header}")
    return found


def test_data_flows_one_way():
    assert violations(SIM) == []


def test_a_violation_is_found(tmp_path):
    (tmp_path / "base").mkdir()
    (tmp_path / "base" / "units.hpp").write_text('#include "engine/job.hpp"\n#include <simgrid/s4u.hpp>\n')
    assert len(violations(tmp_path)) == 2
