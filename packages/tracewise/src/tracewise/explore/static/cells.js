// Cells of the samples and the table: a menu at a value, sums of selected numbers, copies of a table.

import { filterText } from "./filters.js";

/**
 * @param {{columns: Object<string, string>}} data
 * @param {(changes: [string, string][]) => void} change
 */
export function watchCells(data, change) {
  for (const table of document.querySelectorAll("table.cells")) {
    table.addEventListener("click", (event) => onClick(event, data, change));
    table.addEventListener("contextmenu", (event) => {
      const cell = event.target.closest("td");
      if (cell && columnOf(cell)) { event.preventDefault(); openMenu(cell, data, change); }
    });
    if (table.classList.contains("samples")) for (const cell of table.querySelectorAll("tbody td:not(:first-child)")) cell.tabIndex = -1;
    const first = table.querySelector("tbody td[tabindex]");
    if (first) first.tabIndex = 0;
    table.addEventListener("keydown", (event) => onKey(event, data, change));
  }
  for (const button of document.querySelectorAll("[data-copy]")) button.addEventListener("click", () => copy(button));
}

/** The name of the column of a cell, of the column heads that name one. */
function columnOf(cell) {
  return cell.closest("table").tHead.rows[0].cells[cell.cellIndex]?.dataset.name;
}

const valueOf = (cell) => cell.dataset.value ?? cell.textContent;

function onClick(event, data, change) {
  const cell = event.target.closest("td");
  if (!cell || event.target.closest("a, summary, pre")) return;
  if (cell.dataset.number !== undefined) select(cell);
  else if (columnOf(cell) && !getSelection().toString()) openMenu(cell, data, change);
}

/** Arrow keys walk over the cells, Enter opens the menu. */
function onKey(event, data, change) {
  const cell = event.target;
  if (cell.tagName !== "TD") return;
  const steps = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };
  if (event.key === "Enter") {
    event.preventDefault();
    openMenu(cell, data, change);
  } else if (steps[event.key]) {
    const [down, right] = steps[event.key];
    const next = cell.parentElement.parentElement.rows[cell.parentElement.sectionRowIndex + down]?.cells[cell.cellIndex + right];
    if (next?.tabIndex === undefined || next.cellIndex === 0) return;
    event.preventDefault();
    cell.tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
  }
}

function openMenu(cell, data, change) {
  document.querySelector(".menu")?.remove();
  const column = columnOf(cell);
  const kind = data.columns[column];
  const isNull = cell.classList.contains("null");
  const value = valueOf(cell);
  const filter = (negated) => filterText(isNull
    ? { column, op: negated ? "notnull" : "null", cased: false, values: [] }
    : { column, op: negated ? "ne" : "eq", cased: kind === "text" || kind === "nested", values: [value] });
  const menu = document.createElement("div");
  menu.className = "menu";
  menu.setAttribute("role", "menu");
  const close = () => { menu.remove(); cell.focus(); };
  const entries = [
    ["Only this", () => change([["+f", filter(false)]])],
    ["Not this", () => change([["+f", filter(true)]])],
    [`Group by ${column}`, () => change([["view", "table"], ["+g", column]])],
    ["Copy", () => navigator.clipboard.writeText(value)],
  ];
  for (const [text, act] of entries) {
    const button = Object.assign(document.createElement("button"), { type: "button", textContent: text });
    button.setAttribute("role", "menuitem");
    button.addEventListener("click", () => { close(); act(); });
    menu.append(button);
  }
  menu.addEventListener("keydown", (event) => {
    const buttons = [...menu.children];
    const at = buttons.indexOf(document.activeElement);
    if (event.key === "Escape") { event.stopPropagation(); close(); }
    else if (event.key === "ArrowDown") buttons[(at + 1) % buttons.length].focus();
    else if (event.key === "ArrowUp") buttons[(at + buttons.length - 1) % buttons.length].focus();
    else return;
    event.preventDefault();
  });
  document.body.append(menu);
  const box = cell.getBoundingClientRect();
  menu.style.left = `${Math.max(4, Math.min(box.left, innerWidth - menu.offsetWidth - 4)) + scrollX}px`;
  menu.style.top = `${Math.min(box.bottom, innerHeight - menu.offsetHeight - 4) + scrollY}px`;
  menu.firstChild.focus();
  setTimeout(() => document.addEventListener("pointerdown", (event) => { if (!menu.contains(event.target)) menu.remove(); }, { once: true }));
}

/** Sum, mean and count of the numbers that were clicked. */
function select(cell) {
  cell.classList.toggle("selected");
  const numbers = [...document.querySelectorAll("td.selected")].map((one) => Number(one.dataset.number)).filter(Number.isFinite);
  const sum = numbers.reduce((total, one) => total + one, 0);
  const show = (value) => value.toLocaleString("en", { maximumSignificantDigits: 8 });
  document.getElementById("selection").textContent = numbers.length ? `${numbers.length} selected: sum ${show(sum)}, mean ${show(sum / numbers.length)}` : "";
}

async function copy(button) {
  const text = button.dataset.copy === "statements"
    ? [...document.querySelectorAll(".statements pre")].map((one) => `${one.textContent};`).join("\n")
    : tableText(document.querySelector("table.groups"), button.dataset.copy);
  await navigator.clipboard.writeText(text);
  const label = button.textContent;
  button.textContent = "Copied";
  setTimeout(() => (button.textContent = label), 1200);
}

/** @param {"csv" | "markdown"} format */
export function tableText(table, format) {
  const rows = [...table.rows].map((row) => [...row.cells].flatMap((cell) => {
    const text = cell.dataset.number || cell.textContent.trim();
    return [text, ...Array(cell.colSpan - 1).fill("")];
  }));
  if (format === "csv") return rows.map((row) => row.map((text) => (/[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text)).join(",")).join("\n");
  const lines = rows.map((row) => `| ${row.map((text) => text.replaceAll("|", "\\|").replaceAll("\n", " ")).join(" | ")} |`);
  return [lines[0], `|${" --- |".repeat(rows[0].length)}`, ...lines.slice(1)].join("\n");
}
