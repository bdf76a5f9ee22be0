"""Draws scaling efficiency and share of communication over two varied keys, as heat maps."""

import sys

from inputs import GPUS, Inputs, axis_name, text_of, varied_keys
from matplotlib.figure import Figure

from style import Nothing, caption, main, need_result, plt


def draw(inputs: Inputs) -> Figure:
    need_result(inputs)
    keys = varied_keys(inputs.points)
    if len(keys) != 2:
        raise Nothing(f"needs two keys that vary, {len(keys)} do" + (": " + ", ".join(keys) if keys else ""))
    # GPUs to the right; else what varies more.
    keys.sort(key=lambda key: (key == GPUS, len({text_of(key, p["settings"].get(key)) for p in inputs.points})))
    down, right = keys
    rows = list(dict.fromkeys(text_of(down, point["settings"].get(down)) for point in inputs.points))
    columns = list(dict.fromkeys(text_of(right, point["settings"].get(right)) for point in inputs.points))
    at = {tuple(text_of(key, p["settings"].get(key)) for key in (down, right)): p for p in inputs.points}

    wide = min(max(9.0, 3.6 + 1.3 * len(columns)), 30.0)
    tall = min(max(3.9, 2.2 + 0.42 * len(rows)), 20.0)
    figure, both = plt.subplots(1, 2, figsize=(wide, tall), layout="constrained", sharey=True)
    numbers = len(columns) <= 14 and len(rows) <= 24
    for axes, key, name in zip(both, ("scaling_efficiency", "comm_fraction"),
                               ("scaling efficiency [%]", "exposed communication [% of the step]")):
        nan = float("nan")
        values = [[at[row, column][key] * 100 if (row, column) in at else nan for column in columns]
                  for row in rows]
        flat = [value for row in values for value in row if value == value]
        low, high = min(flat), max(flat)
        # Dark is bad in both; cividis reads the same for colour-blind people, and in grey.
        colours = "cividis" if key == "scaling_efficiency" else "cividis_r"
        image = axes.imshow(values, aspect="auto", cmap=colours, vmin=low, vmax=max(high, low + 1e-9))
        for y, row in enumerate(values) if numbers else []:
            for x, value in enumerate(row):
                if value == value:
                    light = (value - low) / ((high - low) or 1.0)
                    light = light if key == "scaling_efficiency" else 1 - light
                    axes.text(x, y, f"{value:.1f}", ha="center", va="center", fontsize=9,
                              color="black" if light > 0.5 else "white")
        axes.set_xticks(range(len(columns)), columns)
        axes.set_yticks(range(len(rows)), rows)
        if max(map(len, columns)) * len(columns) > wide * 5:
            plt.setp(axes.get_xticklabels(), rotation=35, ha="right")
        axes.set_xlabel(axis_name(right))
        axes.tick_params(length=0)
        axes.spines[:].set_visible(False)
        figure.colorbar(image, ax=axes, label=name, pad=0.02)
    both[0].set_ylabel(axis_name(down))
    caption(figure, inputs, inputs.points)
    return figure


if __name__ == "__main__":
    sys.exit(main(draw, __doc__))
