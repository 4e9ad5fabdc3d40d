// The page of one text: line numbers with anchors, colours, wrapping, copying. Text stays text: nothing is parsed as HTML.
"use strict";

const MAX_LINES = 30000;
const PYTHON = /(#[^\n]*)|('''[^]*?'''|"""[^]*?"""|'(?:\\.|[^'\\\n])*'|"(?:\\.|[^"\\\n])*")|\b(and|as|assert|async|await|break|class|continue|def|del|elif|else|except|False|finally|for|from|global|if|import|in|is|lambda|None|nonlocal|not|or|pass|raise|return|True|try|while|with|yield)\b|\b(\d[\w.]*)/g;
const JSON_TEXT = /()("(?:\\.|[^"\\\n])*")|\b(true|false|null)\b|(-?\b\d[\d.eE+-]*)/g;
const GUARDS = /(#[^\n]*)|('(?:\\.|[^'\\\n])*')|^[|\s]*\+- (\w+)|\b(\d+)\b/gm;
const CLASSES = ["c", "s", "k", "d"];

/** Pieces of the text with their class, one after the other. */
function* pieces(text, pattern) {
  let end = 0;
  for (const match of text.matchAll(pattern)) {
    const index = [1, 2, 3, 4].find((n) => match[n]);
    if (!index) continue;
    const begin = match.index + match[0].indexOf(match[index]);
    if (begin > end) yield [text.slice(end, begin), ""];
    yield [match[index], CLASSES[index - 1]];
    end = begin + match[index].length;
  }
  if (end < text.length) yield [text.slice(end), ""];
}

/** Fills the element with numbered lines of coloured text. */
function show(pre, text, language) {
  const pattern = { python: PYTHON, json: JSON_TEXT, guards: GUARDS }[language];
  const parts = pattern ? pieces(text, pattern) : [[text, ""]];
  const out = document.createDocumentFragment();
  let number = 0;
  let line;
  const begin = () => {
    number += 1;
    line = document.createElement("span");
    line.className = "l";
    line.id = `L${number}`;
    const anchor = document.createElement("a");
    anchor.className = "n";
    anchor.href = `#L${number}`;
    anchor.dataset.n = String(number);
    anchor.tabIndex = -1;
    anchor.setAttribute("aria-label", `line ${number}`);
    line.append(anchor);
    out.append(line);
  };
  begin();
  for (const [part, kind] of parts) {
    const lines = part.split("\n");
    lines.forEach((piece, index) => {
      if (index) {
        line.append("\n");
        begin();
      }
      if (!piece) return;
      if (!kind) return void line.append(piece);
      const span = document.createElement("span");
      span.className = kind;
      span.textContent = piece;
      line.append(span);
    });
  }
  pre.replaceChildren(out);
}

function button(label, action) {
  const element = document.createElement("button");
  element.type = "button";
  element.textContent = label;
  element.addEventListener("click", () => action(element));
  return element;
}

const pre = document.getElementById("text");
const text = pre.textContent;
if (text.split("\n", MAX_LINES + 1).length <= MAX_LINES) {
  show(pre, text, document.body.dataset.language);
  if (location.hash) document.getElementById(location.hash.slice(1))?.scrollIntoView({ block: "center" });
}
const controls = document.createElement("div");
controls.className = "controls";
controls.append(
  button("Wrap lines", (element) => element.setAttribute("aria-pressed", String(pre.classList.toggle("wrap")))),
  button("Copy", async (element) => {
    await navigator.clipboard.writeText(text);
    element.textContent = "Copied";
  }),
);
if (window.parent !== window) {
  const whole = document.createElement("a");
  whole.href = location.href;
  whole.target = "_top";
  whole.textContent = "Open alone";
  controls.append(whole);
}
pre.before(controls);

// The page around a text asks for it to compare two of them; whoever else asks gets nothing.
addEventListener("message", (event) => {
  if (event.source === window.parent && event.data?.tracewise === "text?") {
    event.source.postMessage({ tracewise: "text", number: event.data.number, text }, "*");
  }
});
