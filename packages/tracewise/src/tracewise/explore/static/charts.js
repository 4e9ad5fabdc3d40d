// Charts: values at the pointer, a drag to zoom in, series that are hidden or isolated by their legend.

const number = new Intl.NumberFormat("en", { maximumSignificantDigits: 5 });
const isTime = (text) => /^\d{4}-\d\d-\d\d \d\d:\d\d/.test(text);

/** @param {(from: string, to: string) => void} zoom */
export function drawCharts(zoom) {
  for (const figure of document.querySelectorAll(".chart")) new Chart(figure, zoom);
}

class Chart {
  constructor(figure, zoom) {
    this.figure = figure;
    this.canvas = figure.querySelector(".canvas");
    this.data = JSON.parse(figure.querySelector(".chart-data").textContent);
    this.legend = figure.parentElement.querySelector(".legend");
    this.zoom = zoom;
    this.canZoom = this.data.bins.length > 1 && isTime(this.data.bins[0]);
    this.canvas.classList.toggle("can-zoom", this.canZoom);
    this.crosshair = this.part("crosshair");
    this.selection = this.part("zoom");
    this.readout = this.part("readout");
    this.from = null;
    this.listen();
  }

  part(name) {
    const made = document.createElement("div");
    made.className = name;
    made.hidden = true;
    this.canvas.append(made);
    return made;
  }

  listen() {
    const { canvas } = this;
    canvas.addEventListener("pointermove", (event) => this.point(event));
    canvas.addEventListener("pointerleave", () => this.leave());
    canvas.addEventListener("pointerdown", (event) => {
      if (!this.canZoom || event.button) return;
      this.from = this.share(event);
      canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener("pointerup", (event) => this.drop(event));
    canvas.addEventListener("dblclick", () => history.back());
    for (const row of this.legend?.querySelectorAll("tbody tr") ?? []) this.listenToRow(row);
  }

  /** Where the pointer is, from 0 to 1. */
  share(event) {
    const box = this.canvas.getBoundingClientRect();
    return Math.max(0, Math.min(1, (event.clientX - box.left) / box.width));
  }

  bin(share) {
    return Math.min(this.data.bins.length - 1, Math.floor(share * this.data.bins.length));
  }

  point(event) {
    if (!this.data.bins.length) return;
    const share = this.share(event);
    const at = this.bin(share);
    this.crosshair.hidden = this.readout.hidden = false;
    this.crosshair.style.left = `${(100 * (at + 0.5)) / this.data.bins.length}%`;
    this.readout.replaceChildren(...this.text(at));
    this.readout.style.left = share < 0.5 ? `calc(${100 * share}% + 14px)` : "auto";
    this.readout.style.right = share < 0.5 ? "auto" : `calc(${100 - 100 * share}% + 14px)`;
    if (this.from !== null) {
      const [low, high] = [Math.min(this.from, share), Math.max(this.from, share)];
      this.selection.hidden = false;
      this.selection.style.left = `${100 * low}%`;
      this.selection.style.width = `${100 * (high - low)}%`;
    }
  }

  /** The values of all series in a bin, the largest first. */
  text(at) {
    const head = document.createElement("p");
    head.textContent = this.data.bins[at];
    const table = document.createElement("table");
    const shown = this.data.lines
      .map((line, index) => ({ ...line, index, value: line.values[at], then: line.before?.[at] }))
      .filter((line) => line.value !== null && !this.isOff(line.index))
      .sort((one, other) => other.value - one.value)
      .slice(0, 14);
    for (const line of shown) {
      const row = table.insertRow();
      const swatch = this.legend?.querySelector(`tr[data-line="${line.index}"] .swatch`);
      if (swatch) row.insertCell().append(swatch.cloneNode(true));
      row.insertCell().textContent = line.label;
      const value = row.insertCell();
      value.className = "number";
      value.textContent = number.format(line.value) + (line.then === undefined || line.then === null ? "" : ` (before ${number.format(line.then)})`);
    }
    return [head, table];
  }

  leave() {
    this.crosshair.hidden = this.readout.hidden = true;
    if (this.from === null) this.selection.hidden = true;
  }

  /** A drag over more than one bucket becomes the time that is shown. */
  drop(event) {
    if (this.from === null) return;
    const [low, high] = [this.from, this.share(event)].sort((one, other) => one - other).map((share) => this.bin(share));
    this.from = null;
    this.selection.hidden = true;
    if (high > low) this.zoom(this.data.bins[low], this.data.bins[high]);
  }

  isOff(index) {
    return Boolean(this.legend?.querySelector(`tr[data-line="${index}"]`)?.classList.contains("off"));
  }

  listenToRow(row) {
    const label = row.querySelector(".label");
    const button = document.createElement("button");
    button.type = "button";
    button.title = "Hide or show; with Shift only this one";
    button.setAttribute("aria-pressed", "true");
    label.replaceWith(button);
    button.append(label);
    button.addEventListener("click", (event) => {
      if (event.shiftKey) this.isolate(row);
      else row.classList.toggle("off");
      this.apply();
    });
    row.addEventListener("pointerenter", () => this.fade(row.dataset.line));
    row.addEventListener("pointerleave", () => this.fade(null));
  }

  isolate(row) {
    const rows = [...this.legend.querySelectorAll("tbody tr")];
    const isAlone = rows.every((other) => other.classList.contains("off") === (other !== row));
    for (const other of rows) other.classList.toggle("off", !isAlone && other !== row);
  }

  apply() {
    for (const row of this.legend.querySelectorAll("tbody tr")) row.querySelector("button").setAttribute("aria-pressed", String(!row.classList.contains("off")));
    for (const path of this.figure.querySelectorAll("path")) path.classList.toggle("hidden-line", this.isOff(Number(path.dataset.line)));
  }

  fade(line) {
    for (const path of this.figure.querySelectorAll("path")) path.classList.toggle("faded", line !== null && path.dataset.line !== line);
  }
}
