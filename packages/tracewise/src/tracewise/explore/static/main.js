// Navigation without a full load: the controls and the result of the next page take the places of this one's.
// Without this script the same links and the same form work by themselves.

import { buildFilters } from "./filters.js";
import { drawCharts } from "./charts.js";
import { watchCells } from "./cells.js";
import { listenToKeys } from "./keys.js";

/** The request under way, so that the next one can stop it; the server then stops its query. */
let current = null;

/**
 * Show the page at an address.
 * @param {string} address
 * @param {{keepHistory?: boolean, focus?: string}} options
 */
export async function go(address, options = {}) {
  current?.abort();
  const controller = (current = new AbortController());
  document.body.classList.add("busy");
  toggleStop(true);
  try {
    const response = await fetch(address, { signal: controller.signal, headers: { Accept: "text/html" } });
    const next = new DOMParser().parseFromString(await response.text(), "text/html");
    if (!next.getElementById("app")) {
      location.assign(response.url);
      return;
    }
    if (!options.keepHistory) history.pushState(null, "", response.url);
    show(next);
  } catch (error) {
    if (error.name !== "AbortError") fail(error);
    else if (current === controller) say("Stopped.");
  } finally {
    if (current === controller) {
      current = null;
      document.body.classList.remove("busy");
      toggleStop(false);
    }
  }
}

/** @param {Document} next */
function show(next) {
  const focused = document.activeElement?.id;
  const folded = document.querySelector("#controls .fold")?.open === false;
  for (const id of ["app", "page-data"]) document.getElementById(id).replaceWith(next.getElementById(id));
  document.querySelector(".top nav").replaceWith(next.querySelector(".top nav"));
  document.title = next.title;
  if (folded) document.querySelector("#controls .fold").open = false;
  enhance();
  const again = focused && document.getElementById(focused);
  if (again) again.focus({ preventScroll: true });
  else document.getElementById("result").focus({ preventScroll: true });
  say(document.getElementById("announcement").textContent);
}

/** Give the controls and the result of the page shown what only a script can. */
function enhance() {
  const data = JSON.parse(document.getElementById("page-data").textContent);
  buildFilters(document.getElementById("filters"), data);
  drawCharts(zoomTo);
  watchCells(data, change);
  document.getElementById("stop").addEventListener("click", () => current?.abort());
  for (const button of document.querySelectorAll("[data-copy]")) button.hidden = false;
}

function toggleStop(isShown) {
  const stop = document.getElementById("stop");
  if (stop) stop.hidden = !isShown;
}

function say(text) {
  const place = document.getElementById("announcement");
  place.textContent = "";
  requestAnimationFrame(() => (place.textContent = text));
}

function fail(error) {
  const place = document.createElement("p");
  place.className = "failure";
  place.setAttribute("role", "alert");
  place.textContent = `The explorer does not answer (${error.message}). Is its command still running?`;
  document.getElementById("result").prepend(place);
}

/** The address of the form as it stands; the server leaves the defaults out. */
function formAddress() {
  const form = document.getElementById("controls");
  const parameters = new URLSearchParams();
  for (const [name, value] of new FormData(form)) if (value !== "") parameters.append(name, String(value));
  return `${form.getAttribute("action")}?${parameters}`;
}

export const run = () => go(formAddress());

/** @param {[string, string][]} changes parameters to set, or to add where the name begins with "+" */
function changed(changes) {
  const address = new URL(location.href);
  // The query string is kept as it is: its separators say which of its two spellings a filter is in.
  let parts = address.search.slice(1).split("&").filter((part) => part && !part.startsWith("after="));
  for (const [name, value] of changes) {
    const bare = name.replace(/^\+/, "");
    if (bare === name) parts = parts.filter((part) => !part.startsWith(`${bare}=`));
    parts.push(`${bare}=${encodeURIComponent(value)}`);
  }
  address.search = parts.join("&");
  return address.href;
}

const change = (changes) => go(changed(changes));
const zoomTo = (from, to) => change([["from", from], ["to", to]]);

document.addEventListener("click", (event) => {
  const link = event.target.closest?.("#app a[href], .top nav a[href]");
  if (!link || event.defaultPrevented || event.button || event.ctrlKey || event.metaKey || event.shiftKey) return;
  const address = new URL(link.href);
  if (address.origin !== location.origin || !/^\/t\/[^/]+$/.test(address.pathname)) return;
  event.preventDefault();
  go(address.href);
});
document.addEventListener("submit", (event) => {
  if (event.target.id !== "controls") return;
  event.preventDefault();
  run();
});
window.addEventListener("popstate", () => go(location.href, { keepHistory: true }));

if (document.getElementById("app")) {
  if (matchMedia("(max-width: 760px)").matches) document.querySelector("#controls .fold").open = false;
  enhance();
  listenToKeys(run, () => current?.abort());
}
