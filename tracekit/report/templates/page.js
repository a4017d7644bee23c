"use strict";
// What the page adds where scripts run: sorted tables, values under the pointer, a timeline that zooms.
// Without it everything is there: tables, pictures, and the timeline as a picture.
(() => {
  const time = (ns, digits = 3) => {
    const size = Math.abs(ns);
    for (const [unit, scale] of [["s", 1e9], ["ms", 1e6], ["us", 1e3]])
      if (size >= scale) return +(ns / scale).toPrecision(digits) + " " + unit;
    return Math.round(ns) + " ns";
  };

  // Tables: a click on a heading sorts, a second one turns the order round. Rows keep to their group.
  for (const table of document.querySelectorAll("table.sortable")) {
    const heads = [...table.tHead.rows[0].cells];
    heads.forEach((head, column) => {
      head.tabIndex = 0;
      head.setAttribute("role", "button");
      const sort = () => {
        const down = head.getAttribute("aria-sort") === "descending";
        heads.forEach((h) => h.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", down ? "ascending" : "descending");
        const value = (row) => {
          const cell = row.cells[column];
          if (!cell) return "";
          const v = cell.dataset.v;
          return v === undefined || v === "" ? cell.textContent.trim() : Number(v);
        };
        for (const body of table.tBodies) {
          const rows = [...body.rows].filter((r) => !r.classList.contains("group"));
          rows.sort((a, b) => {
            const [x, y] = [value(a), value(b)];
            if (typeof x !== typeof y) return typeof x === "number" ? -1 : 1;
            const order = typeof x === "number" ? x - y : x.localeCompare(y);
            return down ? order : -order;
          });
          body.append(...rows);
        }
      };
      head.addEventListener("click", sort);
      head.addEventListener("keydown", (e) => {
        if (e.key === "Enter" || e.key === " ") { e.preventDefault(); sort(); }
      });
    });
  }

  // Pictures: the values of all curves under the pointer.
  const tip = document.createElement("div");
  tip.id = "tip";
  tip.setAttribute("role", "status");
  document.body.append(tip);
  const showTip = (event, text) => {
    tip.textContent = text;
    tip.style.display = text ? "block" : "none";
    const left = Math.min(event.clientX + 14, window.innerWidth - tip.offsetWidth - 8);
    tip.style.left = Math.max(4, left) + "px";
    tip.style.top = event.clientY + 16 + "px";
  };
  const hideTip = () => { tip.style.display = "none"; };
  const at = (curve, x) => {
    let low = 0, high = curve.x.length - 1;
    if (x < curve.x[0] || x > curve.x[high]) return null;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (curve.x[middle] <= x) low = middle; else high = middle - 1;
    }
    return curve.y[Math.min(low, curve.y.length - 1)];
  };
  for (const figure of document.querySelectorAll("figure[data-axes]")) {
    const axes = JSON.parse(figure.dataset.axes);
    const svg = figure.querySelector("svg");
    const box = svg.viewBox.baseVal;
    svg.addEventListener("pointermove", (event) => {
      const place = svg.getBoundingClientRect();
      const px = (event.clientX - place.left) / place.width * box.width;
      const py = (event.clientY - place.top) / place.height * box.height;
      const ax = axes.find((a) => px >= a.box[0] && px <= a.box[2] && py >= a.box[1] && py <= a.box[3]);
      if (!ax) return hideTip();
      const share = (px - ax.box[0]) / (ax.box[2] - ax.box[0]);
      const [a, b] = ax.x;
      const x = ax.log ? a * (b / a) ** share : a + (b - a) * share;
      const lines = [ax.time ? time(x) : String(Math.round(x))];
      for (const curve of ax.curves) {
        const y = at(curve, x);
        if (y !== null && y !== undefined) lines.push(curve.name + ": " + (ax.percent ? +(100 * y).toPrecision(3) + " %" : +y.toPrecision(3)));
      }
      showTip(event, lines.join("\n"));
    });
    svg.addEventListener("pointerleave", hideTip);
  }

  timeline();

  // The timeline: one lane a trace and CPU; wheel or buttons zoom, dragging moves, lists choose CPU and tasks.
  function timeline() {
    const place = document.getElementById("timeline");
    if (!place) return;
    const data = JSON.parse(document.getElementById("tracekit-timeline").textContent);
    const picture = place.querySelector("figure");
    const tools = place.querySelector(".tools");
    const canvas = place.querySelector("canvas");
    const [pickCpu, pickTask] = tools.querySelectorAll("select");
    tools.hidden = canvas.hidden = false;
    picture.hidden = true;
    const cpus = [...new Set(data.traces.flatMap((t) => t.cpu))].sort((a, b) => a - b);
    for (const cpu of cpus) pickCpu.add(new Option("CPU " + cpu, cpu));
    data.groups.forEach((g, i) => pickTask.add(new Option("all " + g, "g" + i)));
    data.tasks.forEach(([name], i) => pickTask.add(new Option(name, "t" + i)));
    const whole = [0, data.span];
    let view = data.view.slice();
    const lanes = () => {
      const some = pickCpu.value === "" ? cpus : [Number(pickCpu.value)];
      return some.flatMap((cpu) => data.traces.map((trace) => ({ cpu, trace })));
    };
    const starts = new Map(data.traces.map((t) => {
      let now = 0;
      return [t, t.ts.map((d) => (now += d))];
    }));
    const lane = 26, gutter = 4;
    const wanted = (trace, i) => {
      const choice = pickTask.value;
      if (choice === "") return true;
      const task = trace.task[i];
      return choice[0] === "t" ? task === +choice.slice(1) : data.tasks[task][1] === +choice.slice(1);
    };
    const draw = () => {
      const shown = lanes();
      const style = getComputedStyle(document.documentElement);
      const colour = (name) => style.getPropertyValue(name).trim();
      const width = tools.clientWidth, height = shown.length * (lane + 16) + 24, ratio = window.devicePixelRatio || 1;
      canvas.width = width * ratio; canvas.height = height * ratio;
      canvas.style.width = width + "px"; canvas.style.height = height + "px";
      const pen = canvas.getContext("2d");
      pen.scale(ratio, ratio);
      pen.clearRect(0, 0, width, height);
      pen.font = "12px system-ui, sans-serif";
      const x = (t) => (t - view[0]) / (view[1] - view[0]) * width;
      shown.forEach(({ cpu, trace }, row) => {
        const top = row * (lane + 16) + 14;
        pen.fillStyle = colour("--muted");
        pen.fillText(trace.name + ", CPU " + cpu, 2, top - 3);
        pen.fillStyle = colour("--soft");
        pen.fillRect(0, top, width, lane);
        const begin = starts.get(trace);
        for (let i = 0; i < begin.length; i++) {
          if (trace.cpu[i] !== cpu) continue;
          const from = x(begin[i]), to = x(begin[i] + trace.dur[i]);
          if (to < 0 || from > width) continue;
          const group = data.tasks[trace.task[i]][1];
          pen.globalAlpha = wanted(trace, i) ? 1 : 0.12;
          pen.fillStyle = colour(group < 6 ? "--c" + group : "--muted");
          pen.fillRect(from, top, Math.max(to - from - (to - from > 3 ? 0.6 : 0), 0.7), lane);
          if (to - from > 46 && wanted(trace, i)) {
            pen.fillStyle = colour("--paper");
            pen.save(); pen.beginPath(); pen.rect(from, top, to - from, lane); pen.clip();
            pen.fillText(data.tasks[trace.task[i]][0], Math.max(from, 0) + gutter, top + 17);
            pen.restore();
          }
          pen.globalAlpha = 1;
        }
      });
      pen.fillStyle = colour("--ink");
      const left = "+" + time(view[0], 6), right = "+" + time(view[1], 6) + ", " + time(view[1] - view[0]) + " shown";
      pen.fillText(left, 2, height - 6);
      pen.fillText(right, width - pen.measureText(right).width - 2, height - 6);
    };
    const set = (from, to) => {
      const span = Math.min(Math.max(to - from, 2000), whole[1]);
      from = Math.min(Math.max(from, 0), whole[1] - span);
      view = [from, from + span];
      draw();
    };
    const zoom = (factor, share = 0.5) => {
      const middle = view[0] + (view[1] - view[0]) * share;
      set(middle - (middle - view[0]) * factor, middle + (view[1] - middle) * factor);
    };
    canvas.addEventListener("wheel", (e) => {
      e.preventDefault();
      zoom(e.deltaY > 0 ? 1.3 : 1 / 1.3, e.offsetX / canvas.clientWidth);
    }, { passive: false });
    let drag = null;
    canvas.addEventListener("pointerdown", (e) => { drag = [e.clientX, ...view]; canvas.setPointerCapture(e.pointerId); });
    canvas.addEventListener("pointerup", () => { drag = null; });
    canvas.addEventListener("pointermove", (e) => {
      if (drag) {
        const moved = (e.clientX - drag[0]) / canvas.clientWidth * (drag[2] - drag[1]);
        set(drag[1] - moved, drag[2] - moved);
        return;
      }
      const row = lanes()[Math.floor(e.offsetY / (lane + 16))];
      if (!row) return hideTip();
      const t = view[0] + e.offsetX / canvas.clientWidth * (view[1] - view[0]);
      const begin = starts.get(row.trace);
      for (let i = 0; i < begin.length; i++)
        if (row.trace.cpu[i] === row.cpu && begin[i] <= t && t < begin[i] + row.trace.dur[i]) {
          const clock = row.trace.start + begin[i];
          return showTip(e, data.tasks[row.trace.task[i]][0] + "\nruns for " + time(row.trace.dur[i]) + "\nfrom @" + (clock / 1e9).toFixed(6) + "s");
        }
      hideTip();
    });
    canvas.addEventListener("pointerleave", hideTip);
    canvas.addEventListener("keydown", (e) => {
      const step = (view[1] - view[0]) / 5;
      const keys = { "+": () => zoom(1 / 1.5), "-": () => zoom(1.5), ArrowLeft: () => set(view[0] - step, view[1] - step), ArrowRight: () => set(view[0] + step, view[1] + step) };
      if (keys[e.key]) { e.preventDefault(); keys[e.key](); }
    });
    const act = { in: () => zoom(1 / 2), out: () => zoom(2), all: () => set(...whole), save, perfetto };
    for (const button of tools.querySelectorAll("button")) button.addEventListener("click", () => act[button.dataset.act]());
    pickCpu.addEventListener("change", draw);
    pickTask.addEventListener("change", draw);
    window.addEventListener("resize", draw);
    window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
    draw();

    // The slices of the window as a JSON trace, which ui.perfetto.dev takes.
    function exported() {
      const events = [];
      data.traces.forEach((trace, pid) => {
        events.push({ ph: "M", pid, name: "process_name", args: { name: trace.name } });
        for (const cpu of cpus) events.push({ ph: "M", pid, tid: cpu, name: "thread_name", args: { name: "CPU " + cpu } });
        starts.get(trace).forEach((ts, i) => {
          if (ts < view[1] && ts + trace.dur[i] > view[0])
            events.push({ ph: "X", pid, tid: trace.cpu[i], ts: ts / 1e3, dur: trace.dur[i] / 1e3, name: data.tasks[trace.task[i]][0] });
        });
      });
      return new TextEncoder().encode(JSON.stringify({ traceEvents: events, displayTimeUnit: "ns" })).buffer;
    }
    function save() {
      const link = document.createElement("a");
      link.href = URL.createObjectURL(new Blob([exported()], { type: "application/json" }));
      link.download = "window.trace.json";
      link.click();
    }
    // Only a click leaves the page: a window opens, and gets the slices from here, not from a server.
    function perfetto() {
      const origin = "https://ui.perfetto.dev";
      const other = window.open(origin);
      if (!other) return;
      const ask = setInterval(() => other.postMessage("PING", origin), 200);
      window.addEventListener("message", function ready(e) {
        if (e.origin !== origin || e.data !== "PONG") return;
        clearInterval(ask);
        window.removeEventListener("message", ready);
        other.postMessage({ perfetto: { buffer: exported(), title: data.name } }, origin);
      });
    }
  }
})();
