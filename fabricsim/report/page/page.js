"use strict";
(() => {
  const canvas = document.getElementById("timeline");
  if (!canvas) return;
  const data = JSON.parse(document.getElementById("data").textContent);
  const told = document.getElementById("told"), pen = canvas.getContext("2d");
  const row = 26, axis = 22, left = Math.min(150, Math.max(70, canvas.clientWidth * 0.22));
  let begin = 0, end = data.end, at = -1, dark = matchMedia("(prefers-color-scheme: dark)");
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const say = (units) => {
    const s = units * data.unit;
    for (const [scale, name] of [[1, "s"], [1e-3, "ms"], [1e-6, "µs"]]) if (s >= scale) return +(s / scale).toPrecision(5) + " " + name;
    return +(s / 1e-9).toPrecision(5) + " ns";
  };
  const units = [[1, "s"], [1e-3, "ms"], [1e-6, "µs"], [1e-9, "ns"]];
  const wide = () => canvas.clientWidth - left;
  const x = (time) => left + (time - begin) / (end - begin) * wide();
  const bands = { 0: [0.08, 0.5], 1: [0.6, 0.2], 2: [0.82, 0.14] };
  function draw() {
    const ratio = devicePixelRatio || 1, width = canvas.clientWidth, height = axis + data.rows.length * row;
    canvas.style.height = height + "px";
    canvas.width = width * ratio; canvas.height = height * ratio;
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.fillStyle = colour("--paper"); pen.fillRect(0, 0, width, height);
    pen.font = "11px system-ui, sans-serif"; pen.textBaseline = "middle";
    data.rows.forEach((each, place) => {
      const top = axis + place * row;
      if (place % 2) { pen.fillStyle = colour("--soft"); pen.fillRect(left, top, width - left, row); }
      for (let i = 0; i < each.of.length; i++) {
        const from = x(each.start[i]), to = x(each.start[i] + each.time[i]);
        if (to < left || from > width) continue;
        const band = bands[each.band[i]], start = Math.max(from, left);
        pen.fillStyle = data.names[each.of[i]][1];
        pen.fillRect(start, top + band[0] * row, Math.max(Math.min(to, width) - start, 0.4), band[1] * row);
      }
      pen.fillStyle = colour("--paper"); pen.fillRect(0, top, left, row);
      pen.fillStyle = colour("--ink"); pen.fillText(each.name, 4, top + row / 2, left - 8);
    });
    pen.fillStyle = colour("--ink"); pen.strokeStyle = colour("--line");
    const least = (end - begin) * data.unit / Math.max(2, wide() / 100), decade = 10 ** Math.floor(Math.log10(least));
    const step = [1, 2, 5, 10].find((each) => each * decade >= least) * decade / data.unit;
    const [scale, unit] = units.find((each) => end * data.unit >= 2 * each[0]) || units[3];
    const digits = Math.min(Math.max(0, Math.ceil(-Math.log10(step * data.unit / scale) - 1e-9)), 12);
    for (let i = Math.ceil(begin / step); i * step <= end; i++) {
      const where = x(i * step);
      pen.beginPath(); pen.moveTo(where, axis - 5); pen.lineTo(where, height); pen.stroke();
      pen.textAlign = where > width - 30 ? "right" : where < left + 20 ? "left" : "center";
      pen.fillText((i * step * data.unit / scale).toFixed(digits) + " " + unit, where, 9);
    }
    pen.textAlign = "left";
  }
  function view(from, to) {
    const span = Math.min(Math.max(to - from, 20), data.end);
    begin = Math.min(Math.max(from, 0), data.end - span); end = begin + span;
    canvas.setAttribute("aria-label", `Timeline from ${say(begin)} to ${say(end)}`);
    draw();
  }
  const zoom = (factor, where = 0.5) => {
    const fixed = begin + (end - begin) * where, span = (end - begin) * factor;
    view(fixed - span * where, fixed - span * where + span);
  };
  const move = (share) => view(begin + (end - begin) * share, end + (end - begin) * share);
  const tell = (place, i) => {
    const each = data.rows[place];
    told.textContent = `${each.name}: ${data.names[each.of[i]][0]}, ${say(each.time[i])} from ${say(each.start[i])}`;
  };
  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    const where = Math.max(0, (event.offsetX - left) / wide());
    if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) move(event.deltaX / 1000); else zoom(event.deltaY > 0 ? 1.25 : 0.8, where);
  }, { passive: false });
  let held = null;
  canvas.addEventListener("pointerdown", (event) => { held = event.clientX; canvas.setPointerCapture(event.pointerId); });
  canvas.addEventListener("pointerup", () => { held = null; });
  canvas.addEventListener("pointermove", (event) => {
    if (held !== null) { move((held - event.clientX) / wide()); held = event.clientX; return; }
    const place = Math.floor((event.offsetY - axis) / row), each = data.rows[place];
    if (!each || event.offsetX < left) return;
    const time = begin + (event.offsetX - left) / wide() * (end - begin), high = (event.offsetY - axis) / row - place;
    for (let i = each.of.length - 1; i >= 0; i--) {
      const band = bands[each.band[i]];
      if (time >= each.start[i] && time <= each.start[i] + each.time[i] && high >= band[0] && high <= band[0] + band[1]) { tell(place, i); return; }
    }
  });
  const step = (by) => {
    const order = data.rows[0].of.map((_, i) => i).filter((i) => data.rows[0].start[i] < end && data.rows[0].start[i] + data.rows[0].time[i] > begin);
    if (!order.length) return;
    at = order[(Math.max(order.indexOf(at), by > 0 ? -1 : 0) + by + order.length) % order.length];
    tell(0, at);
  };
  const keys = {
    ArrowLeft: () => move(-0.1), ArrowRight: () => move(0.1), "+": () => zoom(0.8), "=": () => zoom(0.8), "-": () => zoom(1.25),
    ArrowUp: () => zoom(0.8), ArrowDown: () => zoom(1.25), Home: () => view(0, data.end), n: () => step(1), p: () => step(-1),
  };
  canvas.addEventListener("keydown", (event) => { if (keys[event.key]) { event.preventDefault(); keys[event.key](); } });
  for (const [id, key] of [["closer", "+"], ["wider", "-"], ["earlier", "ArrowLeft"], ["later", "ArrowRight"], ["whole", "Home"]])
    document.getElementById(id).addEventListener("click", keys[key]);
  addEventListener("resize", draw); dark.addEventListener("change", draw); addEventListener("beforeprint", draw);
  view(0, data.end);
})();
