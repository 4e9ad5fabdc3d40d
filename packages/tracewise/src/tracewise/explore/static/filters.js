// Filters as chips: a column, an operator and values that can be pasted, suggested and taken away one by one.
// Each stands for a hidden text field in the form, in the same spelling as without a script.

/** A part of a filter in double quotes where it would not be read back as it is; as quote_part of url.py. */
export function quotePart(text) {
  return /[:,"\t\n\r]/.test(text) || text !== text.trim() ? `"${text.replaceAll('"', '""')}"` : text;
}

export function unquotePart(text) {
  return text.length >= 2 && text.startsWith('"') && text.endsWith('"') ? text.slice(1, -1).replaceAll('""', '"') : text;
}

/** The pieces of a text between separators outside of double quotes. */
export function splitQuoted(text, separators, most = Infinity) {
  const pieces = [];
  let start = 0;
  let quoted = false;
  for (let at = 0; at < text.length; at++) {
    if (text[at] === '"') quoted = !quoted;
    else if (separators.includes(text[at]) && !quoted && pieces.length < most) {
      pieces.push(text.slice(start, at));
      start = at + 1;
    }
  }
  return [...pieces, text.slice(start)];
}

/** The values of a pasted list: cut at commas, tabs and line ends. */
export function pastedValues(text) {
  return splitQuoted(text, ",\t\n\r").map((piece) => unquotePart(piece.trim())).filter(Boolean);
}

export function filterText({ column, op, cased, values }) {
  return `${quotePart(column)}:${op}${cased ? "!" : ""}${values.length ? `:${values.map(quotePart).join(",")}` : ""}`;
}

/** @returns null for a text that is no filter; it is then left for the user to mend */
export function parseFilter(text, ops) {
  const [column, opText = "", values] = splitQuoted(text, ":", 2);
  const cased = opText.endsWith("!");
  const op = cased ? opText.slice(0, -1) : opText;
  if (!ops.some((one) => one.name === op)) return null;
  return { column: unquotePart(column), op, cased, values: values === undefined ? [] : splitQuoted(values, ",").map(unquotePart) };
}

const element = (tag, properties = {}, ...children) => {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
};

export function buildFilters(fieldset, data) {
  for (const box of fieldset.querySelectorAll(".filter")) {
    const input = box.querySelector("input");
    const filter = input.value ? parseFilter(input.value, data.ops) : { column: "", op: "eq", cased: false, values: [] };
    if (filter && (filter.column in data.columns || !filter.column)) new FilterBox(box, input, filter, data, fieldset);
  }
}

class FilterBox {
  constructor(box, input, filter, data, fieldset) {
    Object.assign(this, { box, input, filter, data, fieldset, isFresh: !filter.column, selected: -1, asked: null });
    input.type = "hidden";
    box.querySelector("label")?.remove();
    box.classList.add("built");
    box.classList.toggle("fresh", this.isFresh);
    this.column = element("select", { ariaLabel: "Column of the filter", id: `${input.id}-column` });
    this.column.append(new Option(this.isFresh ? "Add a filter…" : "", ""), ...Object.keys(data.columns).map((name) => new Option(name, name)));
    this.op = element("select", { ariaLabel: "Operator", id: `${input.id}-op` });
    this.op.append(...data.ops.map((op) => new Option(op.label, op.name)));
    this.caseButton = element("button", { type: "button", className: "quiet case", textContent: "Aa", title: "Compare upper and lower case", ariaLabel: "With case" });
    this.remove = element("button", { type: "button", className: "quiet", textContent: "×", ariaLabel: "Remove this filter" });
    this.value = element("input", { ariaLabel: "Value", placeholder: "value or list", id: `${input.id}-value`, role: "combobox" });
    this.chips = element("div", { className: "chips" }, this.value);
    this.list = element("ul", { className: "suggestions", role: "listbox", hidden: true, id: `${input.id}-list` });
    this.value.setAttribute("aria-controls", this.list.id);
    this.value.setAttribute("aria-expanded", "false");
    box.append(element("div", { className: "filter-head" }, this.column, this.op, this.caseButton, this.remove), this.chips, this.list);
    this.listen();
    this.draw();
  }

  listen() {
    this.column.addEventListener("change", () => { this.filter.column = this.column.value; this.draw(); });
    this.op.addEventListener("change", () => { this.filter.op = this.op.value; if (!this.takesValues()) this.filter.values = []; this.draw(); });
    this.caseButton.addEventListener("click", () => { this.filter.cased = !this.filter.cased; this.draw(); });
    this.remove.addEventListener("click", () => { this.filter = { column: "", op: "eq", cased: false, values: [] }; if (!this.isFresh) this.box.remove(); else this.draw(); });
    this.value.addEventListener("input", () => this.suggest());
    this.value.addEventListener("focus", () => this.suggest());
    this.value.addEventListener("blur", () => setTimeout(() => { this.commit(); this.close(); }, 150));
    this.value.addEventListener("keydown", (event) => this.onKey(event));
    this.value.addEventListener("paste", (event) => {
      const values = pastedValues(event.clipboardData.getData("text"));
      if (values.length < 2) return;
      event.preventDefault();
      this.add(...values);
    });
  }

  takesValues() {
    return this.data.ops.find((op) => op.name === this.filter.op).values;
  }

  /** The controls and the hidden field as the filter stands. */
  draw() {
    const { filter } = this;
    this.column.value = filter.column;
    this.op.value = filter.op;
    const isChosen = Boolean(filter.column);
    this.box.classList.toggle("unset", !isChosen);
    for (const part of [this.op, this.remove]) part.hidden = !isChosen;
    this.caseButton.hidden = !isChosen || !["text", "nested"].includes(this.data.columns[filter.column]);
    this.caseButton.setAttribute("aria-pressed", String(filter.cased));
    this.chips.hidden = !isChosen || !this.takesValues();
    // The value's field stays where it is: moved, it would lose the focus and the Enter that sends the form.
    for (const chip of this.chips.querySelectorAll(".chip")) chip.remove();
    this.value.before(...filter.values.map((value, at) => this.chip(value, at)));
    const isWhole = isChosen && (filter.values.length > 0 || !this.takesValues());
    this.input.value = isWhole ? filterText(filter) : "";
  }

  chip(value, at) {
    const remove = element("button", { type: "button", textContent: "×", ariaLabel: `Remove ${value}` });
    remove.addEventListener("click", () => { this.filter.values.splice(at, 1); this.draw(); this.value.focus(); });
    return element("span", { className: "chip" }, element("span", { textContent: value === "" ? "(empty)" : value }), remove);
  }

  add(...values) {
    this.filter.values = [...new Set([...this.filter.values, ...values])];
    this.value.value = "";
    this.draw();
    this.close();
  }

  /** What was typed becomes a chip; after an operator for patterns, commas are part of it. */
  commit() {
    const typed = this.value.value.trim();
    if (typed) this.add(...(this.filter.op === "matches" ? [typed] : pastedValues(typed)));
  }

  onKey(event) {
    const items = [...this.list.children];
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      this.selected = Math.max(-1, Math.min(items.length - 1, this.selected + (event.key === "ArrowDown" ? 1 : -1)));
      items.forEach((item, at) => item.setAttribute("aria-selected", String(at === this.selected)));
      items[this.selected]?.scrollIntoView({ block: "nearest" });
      this.value.setAttribute("aria-activedescendant", items[this.selected]?.id ?? "");
    } else if (event.key === "Enter") {
      if (items[this.selected]) { event.preventDefault(); this.add(items[this.selected].dataset.value); this.value.focus(); }
      else this.commit(); // and the form runs
    } else if (event.key === "," && this.filter.op !== "matches" && !this.value.value.includes('"')) {
      event.preventDefault();
      this.commit();
      this.value.focus();
    } else if (event.key === "Backspace" && !this.value.value && this.filter.values.length) {
      this.filter.values.pop();
      this.draw();
      this.value.focus();
    } else if (event.key === "Escape" && !this.list.hidden) {
      event.stopPropagation();
      this.close();
    }
  }

  /** Frequent values among the rows that the other filters leave. */
  async suggest() {
    this.asked?.abort();
    const asked = (this.asked = new AbortController());
    const parameters = new URLSearchParams({ column: this.filter.column, prefix: this.value.value });
    for (const other of this.fieldset.querySelectorAll("input[name=f]")) if (other !== this.input && other.value) parameters.append("f", other.value);
    for (const name of ["from", "to", "tz", "time", "unit"]) {
      const control = document.getElementById(name);
      if (control?.value) parameters.append(name, control.value);
    }
    for (const control of document.querySelectorAll("#controls input[name=d]")) if (control.value) parameters.append("d", control.value);
    try {
      const response = await fetch(`${this.data.table}/values?${parameters}`, { signal: asked.signal });
      const { values } = await response.json();
      if (document.activeElement === this.value) this.open(values.filter((one) => !this.filter.values.includes(one.value)));
    } catch {
      // No suggestions: the value can be typed.
    }
  }

  open(values) {
    this.selected = -1;
    this.list.replaceChildren(...values.slice(0, 12).map((one, at) => {
      const item = element("li", { role: "option", id: `${this.list.id}-${at}` }, element("span", { textContent: one.value }), element("small", { textContent: one.rows.toLocaleString("en") }));
      item.dataset.value = one.value;
      item.addEventListener("mousedown", (event) => { event.preventDefault(); this.add(one.value); this.value.focus(); });
      return item;
    }));
    this.list.hidden = !values.length;
    this.value.setAttribute("aria-expanded", String(!this.list.hidden));
  }

  close() {
    this.asked?.abort();
    this.list.hidden = true;
    this.value.setAttribute("aria-expanded", "false");
  }
}
