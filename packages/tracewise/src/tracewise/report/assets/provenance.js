// Marks the partners of a line in the other columns: those that share a family with it.
"use strict";

(() => {
  const families = JSON.parse(document.getElementById("families").textContent);
  const told = document.getElementById("told");
  const columns = new Map([...document.querySelectorAll("[data-column]")].map((list) => [list.dataset.column, list]));
  let held = false;
  let current = null;

  for (const family of families) {
    for (const [name, lines] of Object.entries(family)) {
      for (const line of lines) columns.get(name).children[line - 1]?.classList.add("linked");
    }
  }

  /** Marks a line and all that belongs to it, and brings the first partner of each column into view. */
  function mark(list, item, isFollowed) {
    for (const marked of document.querySelectorAll(".provenance .partner, .provenance .chosen")) {
      marked.classList.remove("partner", "chosen");
    }
    current = item;
    if (!item) return;
    const number = [...list.children].indexOf(item) + 1;
    item.classList.add("chosen");
    const partners = new Map();
    for (const family of families.filter((other) => other[list.dataset.column].includes(number))) {
      for (const [name, lines] of Object.entries(family)) {
        for (const line of lines) {
          const partner = columns.get(name).children[line - 1];
          if (!partner || partner === item) continue;
          partner.classList.add("partner");
          partners.set(name, [...(partners.get(name) ?? []), partner]);
        }
      }
    }
    for (const [name, items] of partners) {
      const first = items[0];
      if (isFollowed && name !== list.dataset.column) columns.get(name).scrollTop = first.offsetTop - columns.get(name).offsetTop - 60;
    }
    const counts = [...partners].map(([name, items]) => `${new Set(items).size} in ${document.getElementById(`title-${name}`).textContent}`);
    told.textContent = counts.length ? `Line ${number}: ${counts.join(", ")}` : `Line ${number}: no partner`;
  }

  for (const list of columns.values()) {
    list.addEventListener("pointerover", (event) => {
      const item = event.target.closest("li");
      if (!held && item) mark(list, item, false);
    });
    list.addEventListener("click", (event) => {
      const item = event.target.closest("li");
      held = !(held && item === current);
      mark(list, item, true);
    });
    list.addEventListener("keydown", (event) => {
      const linked = [...list.querySelectorAll(".linked")];
      const at = linked.indexOf(current);
      if (event.key === "ArrowDown" || event.key === "ArrowUp") {
        event.preventDefault();
        const next = linked[Math.min(Math.max(at + (event.key === "ArrowDown" ? 1 : -1), 0), linked.length - 1)];
        if (!next) return;
        mark(list, next, true);
        next.scrollIntoView({ block: "nearest" });
      } else if (event.key === "Enter" || event.key === "Escape") {
        held = event.key === "Enter" && !held;
        if (event.key === "Escape") mark(list, null, false);
      }
    });
  }
})();
