// The timeline: spans as a flame chart on a canvas. Only what is at least a pixel wide is drawn, the rest as one bar.
"use strict";

(() => {
  const ROW = 18;
  const HEAD = 22;
  const data = window.tracewiseTimeline;
  const canvas = document.getElementById("chart");
  const details = document.getElementById("span-details");
  const highlight = document.getElementById("highlight");
  const context = canvas.getContext("2d");
  const count = data.start.length;
  const end = data.start.reduce((last, start, n) => Math.max(last, start + Math.max(data.dur[n], 0)), 1);
  const order = Array.from({ length: count }, (_, n) => n).sort((a, b) => data.start[a] - data.start[b]);
  const view = { begin: 0, end, top: 0 };
  const lanes = layLanes();
  let drag = null;

  /** Lanes that follow each other in time share a row; a lane is as high as its spans are deep. */
  function layLanes() {
    const found = data.lanes.map((lane) => ({ ...lane, begin: Infinity, end: 0, depth: 0, top: 0 }));
    for (let n = 0; n < count; n++) {
      const lane = found[data.lane[n]];
      lane.begin = Math.min(lane.begin, data.start[n]);
      lane.end = Math.max(lane.end, data.dur[n] < 0 ? end : data.start[n] + data.dur[n]);
      lane.depth = Math.max(lane.depth, data.depth[n] + 1);
    }
    let top = HEAD;
    for (const rank of new Set(found.map((lane) => lane.rank))) {
      const tracks = [];
      for (const lane of found.filter((other) => other.rank === rank).sort((a, b) => a.begin - b.begin)) {
        let track = tracks.find((other) => other.end <= lane.begin);
        if (!track) tracks.push((track = { end: 0, depth: 0, lanes: [] }));
        track.end = lane.end;
        track.depth = Math.max(track.depth, lane.depth);
        track.lanes.push(lane);
      }
      for (const track of tracks) {
        for (const lane of track.lanes) lane.top = top;
        top += track.depth * ROW + 8;
      }
      top += 14;
    }
    found.height = top;
    return found;
  }

  function colour(name) {
    let hash = 0;
    for (let n = 0; n < name.length; n++) hash = (hash * 31 + name.charCodeAt(n)) | 0;
    return `hsl(${((hash % 360) + 360) % 360} 45% ${matchMedia("(prefers-color-scheme: dark)").matches ? 32 : 78}%)`;
  }
  const colours = data.names.map(colour);
  const duration = (us) => (us >= 1e6 ? `${(us / 1e6).toFixed(2)} s` : us >= 1e3 ? `${(us / 1e3).toFixed(1)} ms` : `${us.toFixed(0)} µs`);

  function draw() {
    const ratio = devicePixelRatio || 1;
    const [width, height] = [canvas.clientWidth, canvas.clientHeight];
    if (canvas.width !== Math.round(width * ratio)) canvas.width = Math.round(width * ratio);
    if (canvas.height !== Math.round(height * ratio)) canvas.height = Math.round(height * ratio);
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    const style = getComputedStyle(document.body);
    context.clearRect(0, 0, width, height);
    context.font = "12px system-ui, sans-serif";
    const scale = width / (view.end - view.begin);
    const wanted = highlight.value.toLowerCase();
    const merged = new Map();
    for (const n of order) {
      if (data.start[n] > view.end) break;
      const open = data.dur[n] < 0;
      const last = open ? end : data.start[n] + data.dur[n];
      if (last < view.begin) continue;
      const lane = lanes[data.lane[n]];
      const y = lane.top + data.depth[n] * ROW - view.top;
      if (y > height || y < HEAD - ROW) continue;
      const x = Math.max((data.start[n] - view.begin) * scale, -1);
      const w = Math.min((last - view.begin) * scale, width + 1) - x;
      const isHit = wanted && data.names[data.name[n]].toLowerCase().includes(wanted);
      if (w < 1) {
        const pixel = Math.round(x);
        if (merged.get(y) === pixel && !isHit) continue;
        merged.set(y, pixel);
      }
      context.globalAlpha = wanted && !isHit ? 0.3 : 1;
      context.fillStyle = colours[data.name[n]];
      context.fillRect(x, y, Math.max(w, 1), ROW - 2);
      if (open || isHit) {
        context.strokeStyle = style.color;
        context.setLineDash(open ? [4, 3] : []);
        context.strokeRect(x + 0.5, y + 0.5, Math.max(w - 1, 1), ROW - 3);
      }
      if (w > 40) {
        context.fillStyle = style.color;
        const text = data.names[data.name[n]] + (data.depth[n] ? "" : ` ${lane.id} ${lane.function}`);
        const room = Math.floor((Math.min(x + w, width) - Math.max(x, 0) - 8) / 6.5);
        if (room > 3) context.fillText(text.length > room ? `${text.slice(0, room - 1)}…` : text, Math.max(x, 0) + 4, y + 12);
      }
    }
    context.globalAlpha = 1;
    drawAxis(width, scale, style.color);
  }

  function drawAxis(width, scale, ink) {
    context.fillStyle = getComputedStyle(document.body).backgroundColor;
    context.fillRect(0, 0, width, HEAD - 2);
    context.fillStyle = ink;
    const rough = 110 / scale;
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((n) => n * power).find((n) => n >= rough);
    for (let at = Math.ceil(view.begin / step) * step; at < view.end; at += step) {
      const x = (at - view.begin) * scale;
      context.fillRect(x, 0, 1, 5);
      context.fillText(duration(at), x + 3, 14);
    }
  }

  let isPlanned = false;
  function redraw() {
    if (isPlanned) return;
    isPlanned = true;
    requestAnimationFrame(() => {
      isPlanned = false;
      draw();
    });
  }

  function zoom(factor, at = 0.5) {
    const middle = view.begin + (view.end - view.begin) * at;
    const width = Math.min(Math.max((view.end - view.begin) * factor, 5), end);
    view.begin = Math.min(Math.max(middle - width * at, 0), end - width);
    view.end = view.begin + width;
    redraw();
  }

  function move(share) {
    const width = view.end - view.begin;
    view.begin = Math.min(Math.max(view.begin + width * share, 0), end - width);
    view.end = view.begin + width;
    redraw();
  }

  function scroll(pixels) {
    view.top = Math.min(Math.max(view.top + pixels, 0), Math.max(lanes.height - canvas.clientHeight, 0));
    redraw();
  }

  function all() {
    Object.assign(view, { begin: 0, end, top: 0 });
    redraw();
  }

  function spanAt(x, y) {
    const time = view.begin + (x / canvas.clientWidth) * (view.end - view.begin);
    const slack = (2 / canvas.clientWidth) * (view.end - view.begin);
    for (let n = 0; n < count; n++) {
      const top = lanes[data.lane[n]].top + data.depth[n] * ROW - view.top;
      if (y < top || y > top + ROW) continue;
      const last = data.dur[n] < 0 ? end : data.start[n] + data.dur[n];
      if (time >= data.start[n] - slack && time <= last + slack) return n;
    }
    return -1;
  }

  function tell(n) {
    if (n < 0) return;
    const lane = lanes[data.lane[n]];
    const length = data.dur[n] < 0 ? "never ended" : duration(data.dur[n]);
    const link = document.createElement("a");
    link.href = lane.href;
    link.textContent = `${lane.id} ${lane.function}`;
    details.replaceChildren(`${data.names[data.name[n]]}: ${length}, from ${duration(data.start[n])}, rank ${lane.rank}, `, link);
  }

  const KEYS = {
    w: () => zoom(0.7), "+": () => zoom(0.7), s: () => zoom(1.4), "-": () => zoom(1.4), a: () => move(-0.2), d: () => move(0.2),
    ArrowLeft: () => move(-0.1), ArrowRight: () => move(0.1), ArrowUp: () => scroll(-40), ArrowDown: () => scroll(40), 0: all,
  };
  canvas.addEventListener("keydown", (event) => {
    if (!KEYS[event.key] || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    KEYS[event.key]();
  });
  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    if (event.shiftKey) scroll(event.deltaY);
    else zoom(event.deltaY > 0 ? 1.2 : 0.83, event.offsetX / canvas.clientWidth);
  }, { passive: false });
  canvas.addEventListener("pointerdown", (event) => {
    drag = { x: event.offsetX, y: event.offsetY, moved: 0 };
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointermove", (event) => {
    if (!drag) return;
    const [dx, dy] = [event.offsetX - drag.x, event.offsetY - drag.y];
    drag = { x: event.offsetX, y: event.offsetY, moved: drag.moved + Math.abs(dx) + Math.abs(dy) };
    move(-dx / canvas.clientWidth);
    scroll(-dy);
  });
  canvas.addEventListener("pointerup", (event) => {
    if (drag && drag.moved < 4) tell(spanAt(event.offsetX, event.offsetY));
    drag = null;
  });
  highlight.addEventListener("input", redraw);
  for (const [id, action] of [["zoom-in", KEYS.w], ["zoom-out", KEYS.s], ["earlier", KEYS.a], ["later", KEYS.d], ["all", all]]) {
    document.getElementById(id).addEventListener("click", action);
  }
  canvas.style.height = `${Math.min(Math.max(lanes.height + 10, 160), innerHeight * 0.65)}px`;
  addEventListener("resize", redraw);
  draw();
})();
