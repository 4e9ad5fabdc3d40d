// Search, tables, and the comparison of two texts. All text of a log is set as text, never as HTML.
"use strict";

const PAGE_ROWS = 50;
const FOUND_ROWS = 50;
const root = document.body.dataset.root;

/** An element with attributes and children. */
function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

// Search.

function setUpSearch() {
  const input = document.getElementById("search");
  const found = document.getElementById("found");
  const counter = document.getElementById("found-count");
  input.addEventListener("input", () => {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    const rows = window.tracewiseSearch ?? [];
    const hits = words.length ? rows.filter((row) => words.every((word) => `${row[0]} ${row[1]} ${row[2]}`.toLowerCase().includes(word))) : [];
    found.replaceChildren(
      ...hits.slice(0, FOUND_ROWS).map(([kind, text, detail, href]) => {
        const quiet = make("span", { class: "quiet" }, ` ${kind}${detail ? `, ${detail}` : ""}`);
        return make("a", { href: root + href }, text, quiet);
      }),
    );
    found.hidden = !hits.length;
    counter.textContent = words.length ? `${hits.length} found` : "";
  });
  document.addEventListener("keydown", (event) => {
    const isTyping = event.target instanceof HTMLInputElement || event.target instanceof HTMLSelectElement;
    if (event.key === "Escape") {
      found.hidden = true;
    } else if (!isTyping && event.key === "/") {
      event.preventDefault();
      input.focus();
    } else if (!isTyping && event.key === "?") {
      document.getElementById("keys").showModal();
    } else if (!found.hidden && (event.key === "ArrowDown" || event.key === "ArrowUp")) {
      const links = [input, ...found.querySelectorAll("a")];
      const next = links[links.indexOf(document.activeElement) + (event.key === "ArrowDown" ? 1 : -1)];
      if (next) {
        event.preventDefault();
        next.focus();
      }
    }
  });
}

// Tables: the rows are data; the page shows some of them.

class DataTable {
  constructor(element) {
    this.element = element;
    this.rows = JSON.parse(element.querySelector("script").textContent).map((row) =>
      row.map((cell) => (typeof cell === "string" ? [cell] : cell)),
    );
    this.heads = [...element.querySelectorAll("thead th")];
    this.body = element.querySelector("tbody");
    this.page = 0;
    this.sorted = null;
    this.text = "";
    this.choice = "";
    this.filterColumn = this.heads.findIndex((head) => head.textContent === element.dataset.filters);
    this.addControls();
    this.heads.forEach((head, column) => {
      const button = make("button", { type: "button" }, head.textContent);
      button.addEventListener("click", () => this.sort(column));
      head.replaceChildren(button);
    });
    this.show();
  }

  addControls() {
    const input = make("input", { type: "search", "aria-label": "Filter rows", placeholder: "filter" });
    input.addEventListener("input", () => {
      this.text = input.value.toLowerCase();
      this.page = 0;
      this.show();
    });
    this.previous = make("button", { type: "button" }, "Previous");
    this.next = make("button", { type: "button" }, "Next");
    this.previous.addEventListener("click", () => this.turn(-1));
    this.next.addEventListener("click", () => this.turn(1));
    this.state = make("span", { class: "quiet", "aria-live": "polite" });
    const controls = make("div", { class: "controls" }, input, ...this.filterButtons(), this.previous, this.next, this.state);
    this.element.prepend(controls);
  }

  filterButtons() {
    if (this.filterColumn < 0) return [];
    const values = [...new Set(this.rows.map((row) => row[this.filterColumn][0]))].slice(0, 20);
    if (values.length < 2) return [];
    return values.map((value) => {
      const button = make("button", { type: "button", "aria-pressed": "false" }, value);
      button.addEventListener("click", () => {
        this.choice = this.choice === value ? "" : value;
        for (const other of this.element.querySelectorAll(".controls [aria-pressed]")) {
          other.setAttribute("aria-pressed", String(other.textContent === this.choice));
        }
        this.page = 0;
        this.show();
      });
      return button;
    });
  }

  sort(column) {
    const isSame = this.sorted?.column === column;
    this.sorted = { column, up: isSame ? !this.sorted.up : false };
    const key = (row) => row[column][2] ?? row[column][0];
    const sign = this.sorted.up ? 1 : -1;
    this.rows.sort((a, b) => {
      const [x, y] = [key(a), key(b)];
      return sign * (typeof x === "number" && typeof y === "number" ? x - y : String(x).localeCompare(String(y)));
    });
    this.heads.forEach((head, index) => {
      if (index === column) head.setAttribute("aria-sort", this.sorted.up ? "ascending" : "descending");
      else head.removeAttribute("aria-sort");
    });
    this.page = 0;
    this.show();
  }

  turn(step) {
    this.page += step;
    this.show();
  }

  show() {
    const rows = this.rows.filter(
      (row) =>
        (!this.choice || row[this.filterColumn][0] === this.choice) &&
        (!this.text || row.some((cell) => cell[0].toLowerCase().includes(this.text))),
    );
    const begin = this.page * PAGE_ROWS;
    this.body.replaceChildren(...rows.slice(begin, begin + PAGE_ROWS).map((row) => this.row(row)));
    this.previous.hidden = this.next.hidden = rows.length <= PAGE_ROWS;
    this.previous.disabled = this.page === 0;
    this.next.disabled = begin + PAGE_ROWS >= rows.length;
    const last = Math.min(begin + PAGE_ROWS, rows.length);
    this.state.textContent = rows.length ? `rows ${begin + 1} to ${last} of ${rows.length}` : "no row fits";
  }

  row(row) {
    const cells = row.map(([text, href, , kind, title], column) => {
      const inner = href ? make("a", { href: root + href }, text) : kind ? make("span", { class: `tag ${kind}` }, text) : text;
      const cell = make("td", this.heads[column].classList.contains("number") ? { class: "number" } : {}, inner);
      if (title) cell.title = title;
      return cell;
    });
    return make("tr", {}, ...cells);
  }
}

// Comparison of two texts of a compilation.

/** Pairs of equal, removed and added lines, by the longest common subsequence. */
function difference(a, b) {
  let begin = 0;
  while (begin < a.length && begin < b.length && a[begin] === b[begin]) begin++;
  let end = 0;
  while (end < a.length - begin && end < b.length - begin && a[a.length - 1 - end] === b[b.length - 1 - end]) end++;
  const [x, y] = [a.slice(begin, a.length - end), b.slice(begin, b.length - end)];
  const rows = a.slice(0, begin).map((line) => [line, line]);
  if (x.length * y.length > 4e6) {
    rows.push(...x.map((line) => [line, null]), ...y.map((line) => [null, line]));
  } else {
    const width = y.length + 1;
    const common = new Uint32Array((x.length + 1) * width);
    for (let i = x.length - 1; i >= 0; i--) {
      for (let j = y.length - 1; j >= 0; j--) {
        common[i * width + j] =
          x[i] === y[j] ? common[(i + 1) * width + j + 1] + 1 : Math.max(common[(i + 1) * width + j], common[i * width + j + 1]);
      }
    }
    let [i, j] = [0, 0];
    while (i < x.length || j < y.length) {
      if (i < x.length && j < y.length && x[i] === y[j]) rows.push([x[i++], y[j++]]);
      else if (j >= y.length || (i < x.length && common[(i + 1) * width + j] >= common[i * width + j + 1])) rows.push([x[i++], null]);
      else rows.push([null, y[j++]]);
    }
  }
  return rows.concat(a.slice(a.length - end).map((line) => [line, line]));
}

/** The text of another page of this report, asked from the page itself. */
function fetchText(href) {
  return new Promise((resolve) => {
    const frame = make("iframe", { src: href, hidden: "", title: "text to compare" });
    const listen = (event) => {
      if (event.source !== frame.contentWindow || event.data?.tracewise !== "text") return;
      removeEventListener("message", listen);
      frame.remove();
      resolve(String(event.data.text));
    };
    addEventListener("message", listen);
    frame.addEventListener("load", () => frame.contentWindow.postMessage({ tracewise: "text?" }, "*"));
    document.body.append(frame);
  });
}

function setUpComparison() {
  const start = document.querySelector("button.compare");
  if (!start) return;
  const area = document.querySelector(".comparison");
  const links = [...document.querySelectorAll(".pipeline a")];
  const select = (label, chosen) =>
    make("select", { "aria-label": label }, ...links.map((link, n) => {
      const option = make("option", { value: String(n) }, link.parentElement.textContent);
      option.selected = n === chosen;
      return option;
    }));
  start.hidden = links.length < 2;
  start.addEventListener("click", () => {
    // Before and after one pass are compared most.
    const after = links.findIndex((link) => link.textContent.startsWith("after_"));
    const before = after < 0 ? 0 : links.findIndex((link) => link.textContent === links[after].textContent.replace("after_", "before_"));
    const one = select("first text", Math.max(before, 0));
    const two = select("second text", after < 0 ? 1 : after);
    const table = make("table", {}, make("caption", {}, "lines that differ"), make("tbody"));
    const state = make("p", { class: "quiet", "aria-live": "polite" });
    const run = async () => {
      const texts = await Promise.all([one, two].map((choice) => fetchText(links[Number(choice.value)].href)));
      const rows = difference(texts[0].split("\n"), texts[1].split("\n"));
      const changed = rows.filter(([left, right]) => left !== right).length;
      state.textContent = changed ? `${changed} lines differ` : "The texts are equal.";
      table.tBodies[0].replaceChildren(
        ...rows.map(([left, right]) => {
          const isEqual = left === right;
          const cell = (text, kind, sign) => make("td", isEqual || text === null ? {} : { class: kind }, text === null ? "" : (isEqual ? "  " : sign) + text);
          return make("tr", {}, cell(left, "removed", "- "), cell(right, "added", "+ "));
        }),
      );
    };
    one.addEventListener("change", run);
    two.addEventListener("change", run);
    area.replaceChildren(make("div", { class: "controls" }, one, two), state, table);
    area.hidden = false;
    run();
  });
  for (const link of links) {
    link.addEventListener("click", () => {
      links.forEach((other) => other.removeAttribute("aria-current"));
      link.setAttribute("aria-current", "true");
    });
  }
}

setUpSearch();
for (const element of document.querySelectorAll(".data-table")) if (element.querySelector("script")) new DataTable(element);
setUpComparison();
for (const place of document.querySelectorAll(".place")) {
  place.addEventListener("click", () => navigator.clipboard?.writeText(place.title));
}
