"""Makes every figure that the files have data for, as PNG and SVG; `stepcast plot` runs this.

A new figure is a new script with a `draw`, and its name in FIGURES.
"""

import argparse
import importlib
import sys
from pathlib import Path

import style
from inputs import NotAResult, read

FIGURES = (
    "step_split",
    "efficiency",
    "throughput",
    "chunk_size",
    "accumulation",
    "algorithms",
    "heat_map",
    "predicted_measured",
    "time_line",
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", type=Path, nargs="+", metavar="RESULT")
    parser.add_argument("-o", "--output", type=Path, required=True, help="folder of the figures")
    options = parser.parse_args()
    try:
        inputs = read(options.files)
        options.output.mkdir(parents=True, exist_ok=True)
        style.set_up()
        for name in FIGURES:
            try:
                figure = importlib.import_module(name).draw(inputs)
            except style.Nothing as error:
                print(f"skipped {name}: {error}", file=sys.stderr)
                continue
            for suffix in (".png", ".svg"):
                path = options.output / (name + suffix)
                style.save(figure, path)
                print(path)
            style.plt.close(figure)
    except NotAResult as error:
        print(f"stepcast: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"stepcast: {error.filename or options.output}: {error.strerror}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
