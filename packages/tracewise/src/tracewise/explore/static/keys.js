// Keys: what the mouse can do, without it; "?" lists them.

const VIEWS = ["samples", "table", "series", "distribution"];
const KEYS = [
  ["Enter, Ctrl+Enter", "run the query"],
  ["Esc", "stop a running query, close what is open"],
  ["1 2 3 4", "samples, table, time series, distribution"],
  ["/ or f", "add a filter"],
  ["t", "change the time"],
  ["n", "older rows"],
  ["arrows, Enter", "walk over the cells of the samples, open the menu of a value"],
  ["Backspace in a filter", "take the last value away"],
  ["?", "this list"],
];

/**
 * @param {() => void} run
 * @param {() => void} stop
 */
export function listenToKeys(run, stop) {
  const button = document.getElementById("keys-button");
  button.hidden = false;
  button.addEventListener("click", showKeys);
  document.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) return run();
    if (event.key === "Escape") { document.querySelector(".menu")?.remove(); return stop(); }
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, select, textarea, dialog, [role=menu]")) return;
    const action = {
      "?": showKeys,
      "/": () => focusOn("f0-column"),
      f: () => focusOn("f0-column"),
      t: () => focusOn("from"),
      n: () => document.getElementById("older")?.click(),
    }[event.key] ?? (VIEWS[event.key - 1] && (() => document.querySelector(`.tabs a[data-view="${VIEWS[event.key - 1]}"]`).click()));
    if (!action) return;
    event.preventDefault();
    action();
  });
}

function focusOn(id) {
  document.querySelector("#controls .fold").open = true;
  document.getElementById(id)?.focus();
}

function showKeys() {
  let dialog = document.getElementById("keys");
  if (!dialog) {
    dialog = Object.assign(document.createElement("dialog"), { id: "keys" });
    dialog.setAttribute("aria-label", "Keys");
    const table = document.createElement("table");
    for (const [key, meaning] of KEYS) {
      const row = table.insertRow();
      const head = document.createElement("th");
      head.scope = "row";
      head.textContent = key;
      row.append(head);
      row.insertCell().textContent = meaning;
    }
    const close = Object.assign(document.createElement("button"), { textContent: "Close", autofocus: true });
    close.addEventListener("click", () => dialog.close());
    dialog.append(table, close);
    document.body.append(dialog);
  }
  dialog.showModal();
}
