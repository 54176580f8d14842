// Two runs side by side, entry by entry: where they say something else is marked.

import { get } from "./api.js";
import { badge, h } from "./dom.js";

const PAGE = 200;

function describe(row) {
  return row ? row.lines.map((line) => `${line.label}: ${line.text}`).join("\n") || row.kind.replaceAll("_", " ") : "";
}

// Entries stand beside each other by their place in the program and their kind, each so many times as it occurs.
function pair(left, right) {
  const name = (row, seen) => {
    const base = `${row.key}|${row.kind}`;
    seen.set(base, (seen.get(base) || 0) + 1);
    return `${base}|${seen.get(base)}`;
  };
  const seenLeft = new Map();
  const seenRight = new Map();
  const byName = new Map(right.map((row) => [name(row, seenRight), row]));
  const pairs = left.map((row) => {
    const key = name(row, seenLeft);
    const other = byName.get(key);
    byName.delete(key);
    return [row, other];
  });
  return [...pairs, ...[...byName.values()].map((row) => [undefined, row])];
}

function buildSide(id, run) {
  return h("div", {}, h("a", { href: `#/run/${encodeURIComponent(id)}` }, id), " ", badge(run.status), h("p", { class: "sub" }, `${run.entries} entries, ${run.total.calls} model calls`));
}

export function showCompare(main, left, right) {
  const body = h("tbody");
  const heads = h("tr");
  const note = h("p", { class: "sub", role: "status" }, "reading");
  main.replaceChildren(h("h1", {}, "Compare"), note, h("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": "Entries side by side" }, h("table", { class: "compare-table" }, h("thead", {}, heads), body)));
  (async () => {
    const ids = [left, right];
    const runs = await Promise.all(ids.map((run) => get("run", { run })));
    const rows = await Promise.all(ids.map(async (run) => (await get("entries", { run, after: 0, limit: PAGE })).rows));
    heads.replaceChildren(h("th", { scope: "col" }, "Place"), ...ids.map((id, index) => h("th", { scope: "col" }, buildSide(id, runs[index]))));
    const pairs = pair(...rows);
    const isEqual = ([a, b]) => describe(a) === describe(b);
    note.textContent = `${pairs.filter((one) => !isEqual(one)).length} of ${pairs.length} steps differ${runs.some((run) => run.entries > PAGE) ? `; the first ${PAGE} entries of each are compared` : ""}`;
    body.replaceChildren(...pairs.map((one) => h("tr", { class: isEqual(one) ? null : "differs" }, h("td", {}, `${(one[0] || one[1]).key || "run"}${isEqual(one) ? "" : " ≠"}`), ...one.map((row) => h("td", {}, h("pre", {}, describe(row)))))));
  })().catch((error) => { note.textContent = error.message; });
  return () => {};
}
