"use strict";
// The page of `stepcast report`: table, charts and time line, all from the JSON in #data.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const { columns, rows } = data;
  const by_id = (id) => document.getElementById(id);
  const column_of = new Map(columns.map((column, index) => [column.key, index]));
  const MOST_BARS = 40, MOST_LINES = 12;

  // ---- values ----
  const is_number = (value) => typeof value === "number";
  /// A value in the unit that is shown; text stays text.
  const shown_value = (row, index) => is_number(row[index]) ? row[index] * columns[index].factor : row[index];
  function bytes_text(value) {
    for (const [size, unit] of [[2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"]])
      if (value >= size) return `${+(value / size).toPrecision(4)} ${unit}`;
    return `${value} B`;
  }
  function text_of(row, index) {
    const value = row[index], column = columns[index];
    if (value === null || value === undefined) return "–";
    if (value === true) return "yes";
    if (value === false) return "no";
    if (!is_number(value)) return typeof value === "string" ? value : JSON.stringify(value);
    if (column.bytes) return bytes_text(value);
    return column.digits === null ? String(value) : (value * column.factor).toFixed(column.digits);
  }
  const label_of = (index) => columns[index].name + (columns[index].unit ? ` [${columns[index].unit}]` : "");
  const numeric = columns.map((_, index) => rows.some((row) => is_number(row[index])));
  const varies = columns.map((_, index) => new Set(rows.map((row) => JSON.stringify(row[index]))).size > 1);

  // ---- colours: Okabe and Ito's ----
  const LIGHT = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000"];
  const DARK = ["#56B4E9", "#E69F00", "#1FC79A", "#E39AC4", "#F0E442", "#FF8A3D", "#FFFFFF"];
  const PARTS = [["split.compute_s", "compute", "#0072B2"], ["split.optimizer_s", "optimizer", "#56B4E9"],
    ["split.host_s", "host", "#009E73"], ["split.wait_s", "wait", "#F0E442"],
    ["split.exposed_comm_s", "exposed communication", "#D55E00"]];
  const DASHES = [[], [7, 4], [2, 3], [9, 3, 2, 3]];
  const MARKS = ["circle", "rect", "triangle", "rectRot", "crossRot", "star"];
  const is_dark = () => document.documentElement.dataset.theme === "dark";
  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const colour = (index) => (is_dark() ? DARK : LIGHT)[index % LIGHT.length];

  function stripes(main) {
    const tile = document.createElement("canvas");
    tile.width = tile.height = 8;
    const pen = tile.getContext("2d");
    pen.strokeStyle = main;
    pen.lineWidth = 2;
    for (const shift of [-8, 0, 8]) {
      pen.beginPath();
      pen.moveTo(shift, 8);
      pen.lineTo(shift + 8, 0);
      pen.stroke();
    }
    return pen.createPattern(tile, "repeat");
  }

  // ---- theme ----
  const system_dark = matchMedia("(prefers-color-scheme: dark)");
  let theme = "system";
  try { theme = localStorage.getItem("stepcast-theme") || theme; } catch { /* a file may have no storage */ }
  function apply_theme() {
    document.documentElement.dataset.theme = theme === "system" ? (system_dark.matches ? "dark" : "light") : theme;
    by_id("theme").textContent = `theme: ${theme}`;
  }
  by_id("theme").addEventListener("click", () => {
    theme = { system: is_dark() ? "light" : "dark", light: "dark", dark: "light" }[theme];
    try { localStorage.setItem("stepcast-theme", theme); } catch { /* see above */ }
    apply_theme();
    draw_all();
  });
  system_dark.addEventListener("change", () => { apply_theme(); draw_all(); });

  // ---- table ----
  let order = rows.map((_, index) => index), sorted_by = null, upward = true;
  let visible = order;
  let chosen = rows.reduce((best, row, index) => data.timeLines[index] && data.timeLines[index].buckets.length &&
    (best < 0 || row[column_of.get("world_size")] > rows[best][column_of.get("world_size")]) ? index : best, -1);
  if (chosen < 0) chosen = 0;
  const filters = columns.map(() => "");
  const table_rows = [];

  /// A test from what somebody typed: comparisons in the unit shown, else text.
  function test_of(text, index) {
    const wanted = text.trim();
    if (!wanted) return null;
    const number = "(-?[0-9.]+(?:e[+-]?[0-9]+)?)";
    let match = wanted.match(new RegExp(`^(<=|>=|<|>|=)\\s*${number}$`, "i"));
    if (match) {
      const limit = Number(match[2]);
      // What reads as equal is equal: rounded as it is shown.
      const value = (row) => columns[index].digits === null ? row[index] : Number(text_of(row, index));
      const compare = { "<": (v) => v < limit, "<=": (v) => v <= limit, ">": (v) => v > limit,
        ">=": (v) => v >= limit, "=": (v) => v === limit }[match[1]];
      return (row) => is_number(row[index]) && compare(value(row));
    }
    match = wanted.match(new RegExp(`^${number}\\s*\\.\\.\\s*${number}$`, "i"));
    if (match) return (row) => is_number(row[index]) && shown_value(row, index) >= Number(match[1]) &&
      shown_value(row, index) <= Number(match[2]);
    return (row) => text_of(row, index).toLowerCase().includes(wanted.toLowerCase());
  }

  function compare(a, b, index) {
    const [x, y] = [rows[a][index], rows[b][index]];
    if (x === y) return 0;
    if (x === null || x === undefined) return 1;  // what is not known stands last, either way
    if (y === null || y === undefined) return -1;
    const result = is_number(x) && is_number(y) ? x - y : String(x).localeCompare(String(y), "en", { numeric: true });
    return upward ? result : -result;
  }

  function build_table() {
    const head = document.querySelector("#points thead"), body = document.querySelector("#points tbody");
    const names = head.insertRow(), inputs = head.insertRow();
    columns.forEach((column, index) => {
      const cell = document.createElement("th"), button = document.createElement("button");
      button.type = "button";
      button.textContent = column.name;
      if (column.unit) {
        const unit = document.createElement("span");
        unit.className = "unit";
        unit.textContent = column.unit;
        button.append(unit);
      }
      button.addEventListener("click", () => {
        upward = sorted_by === index ? !upward : true;
        sorted_by = index;
        refresh();
      });
      cell.scope = "col";
      cell.title = column.key;
      cell.dataset.key = column.key;
      cell.append(button);
      names.append(cell);
      const input = document.createElement("input");
      input.type = "search";
      input.setAttribute("aria-label", `filter ${column.name}`);
      input.addEventListener("input", () => { filters[index] = input.value; refresh(); });
      const place = document.createElement("th");
      place.append(input);
      inputs.append(place);
    });
    rows.forEach((row, number) => {
      const line = document.createElement("tr");
      line.tabIndex = 0;
      line.dataset.point = number;
      row.forEach((value, index) => {
        const cell = line.insertCell();
        cell.textContent = text_of(row, index);
        if (is_number(value)) {
          cell.className = "number";
          cell.title = JSON.stringify(value);
        }
      });
      const choose = () => { chosen = number; mark(); draw_line(true); };
      line.addEventListener("click", choose);
      line.addEventListener("keydown", (event) => { if (event.key === "Enter") choose(); });
      table_rows.push(line);
    });
    body.replaceChildren(...table_rows);
  }

  function mark() {
    table_rows.forEach((line, number) => line.classList.toggle("chosen", number === chosen));
  }

  function refresh() {
    const tests = filters.map(test_of).filter((test) => test);
    const anywhere = by_id("find").value.trim().toLowerCase();
    if (anywhere) tests.push((row) => row.some((_, index) => text_of(row, index).toLowerCase().includes(anywhere)));
    if (sorted_by !== null) order = [...order].sort((a, b) => compare(a, b, sorted_by) || a - b);
    visible = order.filter((number) => tests.every((test) => test(rows[number])));
    document.querySelector("#points tbody").replaceChildren(...visible.map((number) => table_rows[number]));
    document.querySelectorAll("#points thead tr:first-child th").forEach((cell, index) => {
      cell.setAttribute("aria-sort", index !== sorted_by ? "none" : upward ? "ascending" : "descending");
      cell.firstChild.firstChild.nodeValue =
        columns[index].name + (index !== sorted_by ? "" : upward ? " ▲" : " ▼");
    });
    by_id("count").textContent = `${visible.length} of ${rows.length} points`;
    draw_curve();
    draw_split();
  }

  // ---- charts ----
  const charts = {};
  function draw(id, config) {
    if (charts[id]) charts[id].destroy();
    Chart.defaults.color = css("--text");
    Chart.defaults.borderColor = css("--line");
    Chart.defaults.font.family = "system-ui, sans-serif";
    config.options = { animation: false, responsive: true, maintainAspectRatio: false, ...config.options };
    charts[id] = new Chart(by_id(id), config);
  }
  const titled = (text, more = {}) => ({ title: { display: true, text }, ...more });
  const tick_text = (value) => +value.toPrecision(6);

  /// Vertical lines from low to high beside each point that has a band.
  const band_lines = {
    id: "band",
    afterDatasetsDraw(chart) {
      const pen = chart.ctx, scale = chart.scales.y;
      chart.data.datasets.forEach((set, index) => {
        const meta = chart.getDatasetMeta(index);
        if (meta.hidden) return;
        set.data.forEach((point, number) => {
          if (!point.band) return;
          const x = meta.data[number].x, [low, high] = point.band.map((value) => scale.getPixelForValue(value));
          pen.save();
          pen.strokeStyle = set.borderColor;
          pen.lineWidth = 1.2;
          pen.beginPath();
          pen.moveTo(x, low);
          pen.lineTo(x, high);
          for (const y of [low, high]) { pen.moveTo(x - 4, y); pen.lineTo(x + 4, y); }
          pen.stroke();
          pen.restore();
        });
      });
    },
  };

  function fill_selects() {
    const option = (index, text) => new Option(text ?? label_of(index), index);
    const settings = columns.map((_, index) => index).filter((index) => varies[index]);
    const inputs_first = (index) => columns[index].key.startsWith("settings.") || ["world_size", "nodes", "micro_batch",
      "accumulation_steps", "global_batch"].includes(columns[index].key) ? 0 : 1;
    settings.sort((a, b) => inputs_first(a) - inputs_first(b) || a - b);
    const xs = settings.length ? settings : [column_of.get("world_size")];
    by_id("x").replaceChildren(...xs.map((index) => option(index)));
    by_id("y").replaceChildren(...columns.map((_, index) => index).filter((index) => numeric[index] &&
      !columns[index].key.startsWith("settings.")).map((index) => option(index)));
    const groups = settings.filter((index) => !inputs_first(index) && columns[index].key !== "global_batch");
    by_id("by").replaceChildren(option(-1, "nothing"), ...groups.map((index) => option(index)));
    const gpus = column_of.get("world_size"), by_gpus = varies[gpus];
    by_id("x").value = by_gpus ? gpus : xs[0];
    by_id("y").value = column_of.get(by_gpus ? "scaling_efficiency" : "step_time_s");
    const rest = data.varied.map((key) => column_of.get(key) ?? column_of.get(key.split(".").pop()))
      .filter((index) => index !== undefined && index !== Number(by_id("x").value));
    by_id("by").value = rest.length ? rest[0] : -1;
    by_id("logx").checked = numeric[Number(by_id("x").value)];
  }

  function draw_curve() {
    const [x, y, by] = ["x", "y", "by"].map((id) => Number(by_id(id).value));
    const all_numbers = visible.every((number) => is_number(rows[number][x]));
    const groups = new Map();
    for (const number of visible) {
      const name = by < 0 ? "forecast" : `${columns[by].name} ${text_of(rows[number], by)}`;
      if (!groups.has(name)) groups.set(name, []);
      if (is_number(rows[number][y])) groups.get(name).push(number);
    }
    by_id("curve-note").textContent = groups.size > MOST_LINES ?
      `the first ${MOST_LINES} of ${groups.size} lines; filter the table to see others` : "";
    const with_band = columns[y].key === "step_time_s" && column_of.has("step_time_band_s.0");
    const datasets = [...groups].slice(0, MOST_LINES).map(([label, members], index) => ({
      label,
      data: members.map((number) => {
        const row = rows[number];
        return {
          x: all_numbers ? shown_value(row, x) : text_of(row, x),
          y: shown_value(row, y),
          number,
          band: with_band ? [shown_value(row, column_of.get("step_time_band_s.0")),
            shown_value(row, column_of.get("step_time_band_s.1"))] : null,
        };
      }).sort((a, b) => all_numbers ? a.x - b.x : 0),
      borderColor: colour(index), backgroundColor: colour(index), borderDash: DASHES[index % DASHES.length],
      pointStyle: MARKS[index % MARKS.length], pointRadius: visible.length > 200 ? 2 : 4, borderWidth: 2,
      // A line through points that differ in something else as well would mean nothing.
      showLine: new Set(members.map((number) => JSON.stringify(rows[number][x]))).size === members.length,
    }));
    const places = [...new Set(datasets.flatMap((set) => set.data.map((point) => point.x)))];
    if (columns[y].key === "scaling_efficiency" && places.length > 1 && all_numbers)
      datasets.push({ label: "75 %", data: [Math.min(...places), Math.max(...places)].map((at) => ({ x: at, y: 75 })),
        borderColor: css("--soft"), backgroundColor: css("--soft"), borderDash: [4, 4], borderWidth: 1.5, pointRadius: 0,
        pointStyle: "line", showLine: true });
    const log_x = all_numbers && by_id("logx").checked && places.every((at) => at > 0);
    const log_y = by_id("logy").checked;
    const x_ticks = places.length <= 12 && all_numbers ? {
      afterBuildTicks: (axis) => { axis.ticks = [...places].sort((a, b) => a - b).map((value) => ({ value })); },
    } : {};
    draw("curve", {
      type: all_numbers ? "scatter" : "line",
      data: { labels: all_numbers ? undefined : places, datasets },
      plugins: [band_lines],
      options: {
        parsing: all_numbers ? false : undefined,
        onClick: (_, elements, chart) => {
          const point = elements.length && chart.data.datasets[elements[0].datasetIndex].data[elements[0].index];
          if (point && point.number !== undefined) { chosen = point.number; mark(); draw_line(true); }
        },
        scales: {
          x: titled(label_of(x), { max: log_x ? Math.max(...places) : undefined, type: all_numbers ? (log_x ? "logarithmic" : "linear") : "category", ...x_ticks,
            ticks: { callback: function (value) {
              if (!all_numbers) return this.getLabelForValue(value);
              return columns[x].bytes ? bytes_text(value) : tick_text(value);
            } } }),
          y: titled(label_of(y), { type: log_y ? "logarithmic" : "linear", ticks: { callback: (value) => tick_text(value).toLocaleString("en") } }),
        },
        plugins: {
          legend: { display: datasets.length > 1, labels: { usePointStyle: true } },
          tooltip: { callbacks: { label: (item) => item.raw.number === undefined ? "75 %" :
            `${data.names[item.raw.number]}: ${text_of(rows[item.raw.number], y)} ${columns[y].unit}` } },
        },
      },
    });
  }

  function draw_split() {
    const some = visible.slice(0, MOST_BARS), share = by_id("share").checked;
    by_id("split-note").textContent = visible.length > MOST_BARS ?
      `the first ${MOST_BARS} of ${visible.length} points of the table` : "";
    const step = column_of.get("step_time_s");
    draw("split", {
      type: "bar",
      data: {
        labels: some.map((number) => data.names[number].split(", ")),  // one line each
        datasets: PARTS.map(([key, label, main]) => ({
          label, backgroundColor: main, borderColor: css("--back"), borderWidth: { top: 1 },
          data: some.map((number) => share ? rows[number][column_of.get(key)] / rows[number][step] * 100 :
            shown_value(rows[number], column_of.get(key))),
        })),
      },
      options: {
        onClick: (_, elements) => { if (elements.length) { chosen = some[elements[0].index]; mark(); draw_line(true); } },
        scales: { x: { stacked: true, grid: { display: false } },
          y: titled(share ? "share of the step [%]" : "step time [ms]", { stacked: true, max: share ? 100 : undefined }) },
        interaction: { mode: "index", intersect: false },
        plugins: { tooltip: { callbacks: {
          title: (items) => data.names[some[items[0].dataIndex]],
          label: (item) => `${item.dataset.label}: ${item.parsed.y.toFixed(3)} ${share ? "%" : "ms"}`,
          footer: (items) => `exposed ${text_of(rows[some[items[0].dataIndex]], column_of.get("comm_fraction"))} %`,
        } } },
      },
    });
  }

  // ---- time line ----
  function draw_line(whole = false) {
    const row = rows[chosen], entry = data.timeLines[chosen];
    const step = shown_value(row, column_of.get("step_time_s"));
    const optimizer = step - shown_value(row, column_of.get("split.optimizer_s"));
    by_id("chosen").textContent = `Step of ${data.names[chosen]}`;
    if (whole) { by_id("from").value = 0; by_id("to").value = +step.toPrecision(6); }
    const sets = { compute: [], blocked: [], optimizer: [[optimizer, step]], all_reduce: [], broadcast: [] };
    const table = by_id("collectives");
    table.replaceChildren();
    by_id("line-note").textContent = !entry ? "Its collectives are not in this page, which would be too large." :
      !entry.buckets.length ? "It has no collectives." :
      "The compute stream is drawn blocked where it must be by the times of the collectives and by the split.";
    let at = 0;
    for (const [begin, end] of entry ? entry.blocked : []) {
      sets.compute.push([at, begin * 1e3]);
      sets.blocked.push([begin * 1e3, end * 1e3]);
      at = end * 1e3;
    }
    if (optimizer > at) sets.compute.push([at, optimizer]);
    const about = new Map();
    if (entry) {
      const head = table.createTHead().insertRow(), body = table.createTBody();
      for (const name of ["operation", "size", "algorithm", "protocol", "ready [ms]", "start [ms]", "end [ms]", "busbw [GB/s]",
        "runs", "rel. error", "basis"]) {
        const cell = document.createElement("th");
        cell.textContent = name;
        head.append(cell);
      }
      for (const [operation, bytes, algorithm, protocol, ready, start, end, busbw, runs, error, basis] of entry.buckets) {
        const span = [start * 1e3, end * 1e3];
        sets[operation === "broadcast" ? "broadcast" : "all_reduce"].push(span);
        about.set(span, `${bytes_text(bytes)}, ${algorithm}, ${protocol}`);
        const line = body.insertRow();
        [operation, bytes_text(bytes), algorithm, protocol, ...[ready, start, end].map((time) => (time * 1e3).toFixed(3)),
          (busbw / 1e9).toFixed(2), runs, error === null ? "–" : `${(error * 100).toFixed(1)} %`, basis].forEach((text, index) => {
          const cell = line.insertCell();
          cell.textContent = text;
          if ([1, 4, 5, 6, 7, 8, 9].includes(index)) cell.className = "number";
        });
      }
    }
    const set = (label, spans, y, main, border) => ({
      label, backgroundColor: main, borderColor: border ?? css("--back"), borderWidth: border ? 1 : 0.5, borderSkipped: false,
      grouped: false, barPercentage: 0.8, minBarLength: 1, data: spans.map((span) => ({ x: span, y })),
    });
    const low = Number(by_id("from").value), high = Number(by_id("to").value);
    draw("line", {
      type: "bar",
      data: { labels: ["compute", "comm."], datasets: [
        set("compute and host", sets.compute, "compute", "#0072B2"),
        set("blocked: exposed, waiting", sets.blocked, "compute", stripes("#D55E00"), "#D55E00"),
        set("optimizer", sets.optimizer, "compute", "#56B4E9"),
        set("AllReduce", sets.all_reduce, "comm.", "#D55E00"),
        set("broadcast", sets.broadcast, "comm.", "#E69F00"),
      ].filter((each) => each.data.length) },
      options: {
        indexAxis: "y",
        scales: { x: titled("time from the start of the step [ms]", { min: low, max: high > low ? high : step }),
          y: { grid: { display: false } } },
        plugins: { tooltip: { callbacks: { title: () => "", label: (item) => {
          const span = item.raw.x;
          return `${item.dataset.label}: ${span[0].toFixed(3)} to ${span[1].toFixed(3)} ms` +
            (about.has(span) ? ` (${about.get(span)})` : "");
        } } } },
      },
    });
  }

  function draw_all() {
    draw_curve();
    draw_split();
    draw_line();
  }

  for (const id of ["x", "y", "by", "logx", "logy"]) by_id(id).addEventListener("change", draw_curve);
  by_id("share").addEventListener("change", draw_split);
  by_id("find").addEventListener("input", refresh);
  for (const id of ["from", "to"]) by_id(id).addEventListener("change", () => draw_line());
  by_id("whole").addEventListener("click", () => draw_line(true));
  by_id("clear").addEventListener("click", () => {
    filters.fill("");
    by_id("find").value = "";
    document.querySelectorAll("#points thead input").forEach((input) => { input.value = ""; });
    refresh();
  });

  apply_theme();
  build_table();
  fill_selects();
  refresh();
  mark();
  draw_line(true);
})();
