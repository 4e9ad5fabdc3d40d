"use strict";
(() => {
  const byId = (id) => document.getElementById(id);
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];

  // Whatever a link or a key leads to is opened first.
  const reveal = (element) => {
    for (let at = element; at; at = at.parentElement) if (at.tagName === "DETAILS" && at !== element.closest("summary")?.parentElement) at.open = true;
    const row = element.closest("tr");
    if (row && getComputedStyle(row).display === "none") showLines("all");
    for (let at = element; at; at = at.parentElement) if (at.hidden) at.hidden = false;
  };
  const follow = () => {
    const target = location.hash && byId(decodeURIComponent(location.hash.slice(1)));
    if (target) { reveal(target); target.scrollIntoView({ block: "center" }); }
  };
  addEventListener("hashchange", follow);

  // Lines that are shown.
  const kinds = ["all", "typed", "found"];
  const source = byId("source");
  function showLines(kind) {
    source.dataset.lines = kind;
    for (const button of all("[data-show]")) button.setAttribute("aria-pressed", String(button.dataset.show === kind));
  }
  for (const button of all("[data-show]")) button.addEventListener("click", () => showLines(button.dataset.show));

  // Search: an index is made when it is first asked for.
  const input = byId("search"), found = byId("found"), count = byId("found-count"), MOST = 40;
  let index = null;
  const indexed = () => index ??= all("[data-find]").map((element, at) => {
    if (!element.id) element.id = `found-${at}`;
    const row = element.dataset.find === "line" ? element.closest("details").querySelector("summary .place").textContent + ":" + element.querySelector("th").textContent + " " : "";
    const text = (row + element.textContent).replace(/\s+/g, " ").trim();
    return { id: element.id, kind: element.dataset.find, text, folded: text.toLowerCase() };
  });
  const search = () => {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    const hits = words.length ? indexed().filter((one) => words.every((word) => one.folded.includes(word))) : [];
    found.replaceChildren(...hits.slice(0, MOST).map((one) => {
      const link = document.createElement("a");
      link.href = "#" + one.id;
      const kind = document.createElement("span");
      kind.className = "quiet";
      kind.textContent = one.kind + " ";
      link.append(kind, one.text.length > 160 ? one.text.slice(0, 160) + "…" : one.text);
      link.addEventListener("click", () => { close(); setTimeout(follow); });
      return link;
    }));
    found.hidden = !hits.length;
    count.textContent = words.length ? `${hits.length} found${hits.length > MOST ? `, ${MOST} shown` : ""}` : "";
  };
  const close = () => { found.hidden = true; };
  input.addEventListener("input", search);
  input.addEventListener("focus", search);
  const walk = (event) => {
    const links = all("a", found), at = links.indexOf(document.activeElement);
    if (event.key === "Escape") { if (at < 0) input.blur(); else input.focus(); close(); }
    else if (event.key === "ArrowDown") { links[Math.min(at + 1, links.length - 1)]?.focus(); event.preventDefault(); }
    else if (event.key === "ArrowUp") { (at > 0 ? links[at - 1] : input).focus(); event.preventDefault(); }
    else if (event.key === "Enter" && at < 0 && links.length) links[0].click();
  };
  input.addEventListener("keydown", walk);
  found.addEventListener("keydown", walk);
  document.addEventListener("click", (event) => { if (!event.target.closest(".search")) close(); });

  // Modules.
  const filter = byId("module-filter");
  const modules = all("#modules .tree details");
  filter?.addEventListener("input", () => {
    const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    const items = all("#modules .tree li:has(> details)");
    let hits = 0;
    for (const item of items) item.hidden = words.length > 0;
    for (const item of items) {
      const text = item.querySelector(":scope > details > summary").textContent.toLowerCase();
      if (!words.every((word) => text.includes(word))) continue;
      hits += 1;
      for (let at = item; at && at.id !== "modules"; at = at.parentElement) {
        if (at.tagName === "LI") at.hidden = false;
        if (words.length && at.tagName === "DETAILS") at.open = true;
      }
    }
    byId("module-count").textContent = words.length ? `${hits} of ${items.length}` : "";
  });
  byId("modules-open")?.addEventListener("click", () => { for (const one of modules) one.open = true; });
  byId("modules-close")?.addEventListener("click", () => { for (const one of modules) one.open = false; });

  // Collectives: the axis that is shown, and the timeline.
  byId("axis-filter")?.addEventListener("change", (event) => {
    for (const row of all("#by-line tbody tr")) row.hidden = event.target.value !== "" && row.dataset.axis !== event.target.value;
  });
  const chart = byId("timeline");
  if (chart) {
    const bars = all("rect", chart);
    let chosen = -1;
    const choose = (at) => {
      bars[chosen]?.classList.remove("chosen");
      chosen = Math.max(0, Math.min(at, bars.length - 1));
      bars[chosen].classList.add("chosen");
      byId("chosen").textContent = `${chosen + 1} of ${bars.length}: ${bars[chosen].textContent}`;
    };
    chart.addEventListener("click", (event) => { const at = bars.indexOf(event.target.closest("rect")); if (at >= 0) choose(at); });
    chart.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1, Home: -bars.length, End: bars.length }[event.key];
      if (step !== undefined) { choose(chosen + step); event.preventDefault(); }
    });
  }

  // Keys.
  const cards = all("#findings article");
  let card = -1;
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, select, textarea")) return;
    if (event.key === "/") { input.focus(); input.select(); event.preventDefault(); }
    else if (event.key === "?") byId("keys").showModal();
    else if (event.key === "t") showLines(kinds[(kinds.indexOf(source.dataset.lines ?? "all") + 1) % kinds.length]);
    else if ((event.key === "n" || event.key === "p") && cards.length) {
      card = event.key === "n" ? Math.min(card + 1, cards.length - 1) : Math.max(card - 1, 0);
      cards[card].focus({ preventScroll: true });
      cards[card].scrollIntoView({ block: "center" });
    }
  });
  follow();
})();
