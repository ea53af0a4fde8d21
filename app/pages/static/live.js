"use strict";
// The page of a test that runs: takes the server's frames, and goes on after a lost connection.
document.addEventListener("DOMContentLoaded", () => {
  const live = document.getElementById("live");
  if (!live) return;
  const lost = document.getElementById("lost");
  const answers = document.getElementById("answers");
  const points = JSON.parse(document.getElementById("points").textContent);
  const mostRows = 60;

  function color(name) {
    return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  }
  function columns(first) {
    const known = points.filter((point) => point[first] !== null);
    return [0, first, first + 1, first + 2].map((at) => known.map((point) => point[at]));
  }
  const plots = [];
  function plot(id, first, ends, show) {
    const place = document.getElementById(id);
    place.replaceChildren(); // the still picture for those without scripts
    const axis = () => ({ stroke: color("--soft"), grid: { stroke: color("--rule"), width: 1 },
      ticks: { stroke: color("--rule") } });
    const edge = { stroke: "transparent", points: { show: false } };
    const value = (u, v) => v === null || v === undefined ? "-" : show(v);
    const made = new uPlot({
      width: Math.max(place.clientWidth, 220), height: 240, scales: { x: { time: false },
        y: { range: (u, lo, hi) => lo === null ? ends : [Math.max(ends[0], lo - (hi - lo) * .05 - .001),
          Math.min(ends[1], hi + (hi - lo) * .05 + .001)] } },
      series: [{ label: "answers" },
        { label: "estimate", stroke: color("--one"), width: 2.5, value },
        { label: "from", ...edge, value }, { label: "to", ...edge, value }],
      bands: [{ series: [3, 2], fill: color("--band") }],
      axes: [axis(), { ...axis(), size: 56, values: (u, ticks) => ticks.map(show) }],
      cursor: { drag: { x: false, y: false } },
    }, columns(first), place);
    const resize = () => made.setSize({ width: Math.max(place.clientWidth, 220), height: 240 });
    window.addEventListener("resize", resize);
    plots.push(() => made.setData(columns(first)));
  }
  plot("plot-score", 4, [0, 1], (v) => (100 * v).toFixed(1).replace(/\.0$/, "") + " %");
  plot("plot-theta", 1, [-6, 6], (v) => (v > 0 ? "+" : "") + v.toFixed(2));

  const percent = (v) => Math.round(100 * v) + " %";
  const signed = (v) => (v > 0 ? "+" : "") + v.toFixed(2).replace("-", "\u2212");
  function addNumbers(point) {
    const row = document.createElement("tr");
    const head = row.appendChild(document.createElement("th"));
    head.scope = "row";
    head.textContent = point[0];
    for (const [first, show] of [[4, percent], [1, signed]]) {
      const [value, lo, hi] = point.slice(first, first + 3);
      row.appendChild(document.createElement("td")).textContent = value === null ? "-"
        : show(value) + (lo === null || hi === null ? "" : ` (${show(lo)} to ${show(hi)})`);
    }
    document.querySelector("#numbers tbody").prepend(row);
  }
  function take(frame) {
    const figures = document.getElementById("figures");
    figures.innerHTML = frame.figures;
    window.sextant.localTimes(figures);
    document.getElementById("none-yet")?.remove();
    for (const { step, html } of frame.rows) {
      const holder = document.createElement("div");
      holder.innerHTML = html;
      const row = holder.firstElementChild;
      const old = document.getElementById(`step-${step}`);
      if (old) old.replaceWith(row);
      else {
        row.classList.add("new");
        answers.prepend(row);
      }
      window.htmx.process(row);
    }
    while (answers.children.length > mostRows) answers.lastElementChild.remove();
    for (const point of frame.points) {
      points.push(point);
      addNumbers(point);
    }
    if (frame.points.length) for (const draw of plots) draw();
    if (frame.over || frame.state !== live.dataset.state && changesButtons(frame.state)) {
      stream.close();
      window.location.reload();
    }
  }
  function changesButtons(state) {
    const kind = (word) => ["queued", "running", "waiting"].includes(word) ? "underway" : word;
    const changed = kind(state) !== kind(live.dataset.state) || state === "awaiting_response";
    live.dataset.state = state;
    return changed;
  }

  let stream, last = null;
  function listen() {
    const address = new URL(live.dataset.stream, window.location);
    if (last !== null) address.searchParams.set("after", last);
    stream = new EventSource(address);
    stream.addEventListener("open", () => { lost.hidden = true; });
    stream.addEventListener("live", (event) => {
      lost.hidden = true;
      last = event.lastEventId;
      take(JSON.parse(event.data));
    });
    stream.addEventListener("error", () => {
      lost.hidden = false;
      if (stream.readyState !== EventSource.CLOSED) return; // it tries again by itself
      // Refused with an answer: logged out, ended, or a proxy whose server is away.
      stream.close();
      setTimeout(() => fetch(window.location, { redirect: "manual" }).then((answer) => {
        if (answer.ok || answer.type === "opaqueredirect") window.location.reload();
        else listen();
      }).catch(listen), 2000);
    });
  }
  listen();
  window.addEventListener("pagehide", () => stream.close());
  window.addEventListener("pageshow", (event) => { if (event.persisted) window.location.reload(); });
});
