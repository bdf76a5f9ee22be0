"""Step time and share of communication over the values of one setting; chunk_size.py and
accumulation.py are this with their keys."""

from collections.abc import Sequence

from inputs import Inputs, text_of, varied_keys
from matplotlib.figure import Figure

from style import LINES, Nothing, caption, need_result, place, plt, series_over, tidy


def draw_over(inputs: Inputs, keys: Sequence[str], axis_names: dict[str, str]) -> Figure:
    need_result(inputs)
    key = next((key for key in keys if key in varied_keys(inputs.points)), None)
    if key is None:
        raise Nothing("needs two values of " + " or ".join(keys))
    series, note = series_over(inputs.points, {key})
    places, is_log = place(key, [point["settings"].get(key) for point in inputs.points])
    figure, (upper, lower) = plt.subplots(2, 1, figsize=(8.0 if len(series) == 1 else 9.6, 6.4), layout="constrained", sharex=True)
    shown = [point for points in series.values() for point in points]
    for (name, points), style in zip(series.items(), LINES):
        at = {text_of(key, point["settings"].get(key)): point for point in points}
        texts = [text for text in places if text in at]
        xs = [places[text] for text in texts]
        chosen = [at[text] for text in texts]
        steps = [point["step_time_s"] * 1e3 for point in chosen]
        bands = [point["step_time_band_s"] or [point["step_time_s"]] * 2 for point in chosen]
        look = style if is_log else {**style, "linestyle": ":"}
        upper.plot(xs, steps, label=name or "forecast", **look)
        upper.fill_between(xs, [low * 1e3 for low, _ in bands], [high * 1e3 for _, high in bands],
                           color=style["color"], alpha=0.18, linewidth=0)
        shares = [point["comm_fraction"] * 100 for point in chosen]
        lower.plot(xs, shares, **look)
        if len(series) == 1:
            for axes, values, unit in ((upper, steps, "ms"), (lower, shares, "%")):
                for x, value in zip(xs, values):
                    axes.annotate(f"{value:.1f} {unit}", (x, value), xytext=(0, 8),
                                  textcoords="offset points", ha="center", fontsize=9)
    for axes in (upper, lower):
        axes.margins(x=0.08, y=0.2)
        tidy(axes)
    if 2 * min(point["step_time_s"] for point in shown) < max(point["step_time_s"] for point in shown):
        upper.set_ylim(bottom=0.0)  # what is several times as high shall look so
    lower.set_ylim(bottom=0.0)
    if lower.get_ylim()[1] < 1.0:
        lower.set_ylim(top=1.0)
    upper.set_ylabel("step time [ms]")
    lower.set_ylabel("exposed communication\n[% of the step]")
    lower.set_xlabel(axis_names[key])
    lower.set_xticks(list(places.values()), list(places))
    if max(map(len, places)) * len(places) > 80:
        plt.setp(lower.get_xticklabels(), rotation=30, ha="right")
    if len(series) > 1:
        figure.legend(*upper.get_legend_handles_labels(), loc="outside right center", frameon=False, fontsize=9,
                      handlelength=3)
    caption(figure, inputs, shown, *filter(None, ["shaded: band of the step time", note]))
    return figure
