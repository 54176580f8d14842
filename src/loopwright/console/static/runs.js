// The list of runs: live, with filters; what each is about and how it stands.

import { get } from "./api.js";
import { badge, debounce, formatAge, formatCost, formatNumber, h, throttle } from "./dom.js";

const STATUSES = ["running", "waiting", "parked", "suspended", "released", "completed", "failed", "stuck", "limit", "aborted"];

const ATTENTION = [
  ["parked", "parked", "Runs that were given up until a person has them retried", "parked"],
  ["due", "due", "Runs that any worker may continue now"],
  ["dead_letters", "dead letters", "Calls that were recorded for a person to handle"],
  ["escalations", "escalations", "Failed calls that a person was asked about"],
];

// What a run that stopped waits for, so that the list says it.
function describeAsked({ about, tool, text }) {
  if (about === "approval") return `waits for approval of ${tool}: ${text}`;
  if (about === "question") return `asks: ${text}`;
  return `waits for what became of ${tool}: ${text}`;
}

function buildRow(run) {
  const id = encodeURIComponent(run.run_id);
  const details = [run.agent || run.engine, run.thread && `thread ${run.thread}`, ...Object.entries(run.tags).map(([name, value]) => `${name}=${value}`)];
  const why = run.damage || run.error || (run.stop_reason && run.stop_reason !== "answered" ? run.stop_reason : "");
  const counts = Object.entries((!run.unread && run.counts) || {}).map(([name, count]) => `${count} ${name.replace("_", " ")}`);
  return h("li", { class: "run" },
    h("a", { href: `#/run/${id}` },
      h("span", { class: "run-state" }, badge(run.paused ? "paused" : run.status), run.orphaned && badge("orphaned")),
      h("span", { class: "run-text" },
        h("span", { class: "task" }, run.task || run.run_id),
        h("span", { class: "sub" }, [run.run_id, ...details, ...counts].filter(Boolean).join(" · ")),
        why && h("span", { class: "why" }, why),
        ...(run.status === "waiting" ? run.asks || [] : []).map((one) => h("span", { class: "asked" }, describeAsked(one)))),
      h("span", { class: "run-numbers" },
        h("span", {}, `${formatAge(Date.now() / 1000 - run.created)} ago`, h("span", { class: "unit age" }, ` ${formatNumber(run.entries)} entries`)),
        h("span", {}, run.unread ? "…" : formatNumber(run.tokens), h("span", { class: "unit" }, " tokens")),
        h("span", {}, run.unread ? "…" : formatCost(run.cost), h("span", { class: "unit" }, " cost")))),
    h("label", { class: "pick", title: "Choose two runs to compare them" }, h("input", { type: "checkbox", class: "compare", value: run.run_id, "aria-label": `Compare ${run.run_id}` })));
}

export function showRuns(main) {
  const list = h("ul", { class: "runs" });
  const attention = h("ul", { class: "attention", "aria-label": "What wants a person", hidden: true });
  const counts = h("div", { class: "counts", role: "group", "aria-label": "Status" });
  const text = h("input", { type: "search", placeholder: "Search by id, agent, thread, tag", "aria-label": "Search runs" });
  const compare = h("button", { type: "button", class: "primary", hidden: true }, "Compare the two");
  const more = h("button", { type: "button", hidden: true }, "Older runs");
  const problem = h("p", { class: "problem", role: "alert", hidden: true });
  let status = "";
  let pages = 1;
  let isClosed = false;
  let picked = new Set();

  const load = async () => {
    try {
      const found = [];
      let answer = { runs: [], counts: {}, more: false };
      for (let page = 0; page < pages; page += 1) {
        answer = await get("runs", { status, text: text.value.trim(), limit: 50, before: found.at(-1)?.run_id });
        found.push(...answer.runs);
      }
      if (!isClosed) draw(found, answer);
    } catch (error) {
      problem.hidden = false;
      problem.textContent = error.message;
    }
  };
  const draw = (runs, answer) => {
    problem.hidden = true;
    if (runs.some((run) => run.unread)) setTimeout(() => { if (!isClosed) refresh(); }, 500);
    const focused = document.activeElement?.getAttribute("href");
    list.replaceChildren(...runs.map(buildRow));
    if (!runs.length) list.replaceChildren(h("li", { class: "empty" }, "No runs yet. They appear here as soon as a process writes them into this journal."));
    if (focused) [...list.querySelectorAll("a")].find((one) => one.getAttribute("href") === focused)?.focus();
    for (const box of list.querySelectorAll(".compare")) box.checked = picked.has(box.value);
    more.hidden = !answer.more;
    const all = Object.values(answer.counts).reduce((sum, one) => sum + one, 0);
    const options = [["", "all", all], ...STATUSES.map((one) => [one, one, answer.counts[one] || 0])];
    const shown = options.filter(([name, , count]) => count || name === status || !name);
    const hadFocus = counts.contains(document.activeElement) && document.activeElement.dataset.status;
    counts.replaceChildren(...shown.map(([name, label, count]) => h("button", {
      type: "button", "data-status": name, "aria-pressed": String(name === status),
      onclick: () => { status = name; pages = 1; load(); },
    }, `${label} ${formatNumber(count)}`)));
    if (hadFocus !== false) [...counts.children].find((one) => one.dataset.status === hadFocus)?.focus();
  };
  list.addEventListener("change", (event) => {
    const { value, checked } = event.target;
    if (checked) picked.add(value);
    else picked.delete(value);
    picked = new Set([...picked].slice(-2));
    for (const box of list.querySelectorAll(".compare")) box.checked = picked.has(box.value);
    compare.hidden = picked.size !== 2;
  });
  compare.addEventListener("click", () => { location.hash = `#/compare/${[...picked].map(encodeURIComponent).join("/")}`; });
  more.addEventListener("click", () => { pages += 1; load(); });
  text.addEventListener("input", debounce(load, 200));
  const refresh = throttle(load, 250);
  const countAll = async () => {
    try {
      const found = await get("attention");
      const shown = ATTENTION.filter(([name]) => found[name]);
      attention.replaceChildren(...shown.map(([name, words, why, filter]) => {
        const text = `${formatNumber(found[name])} ${words}`;
        const choose = () => { status = filter; pages = 1; load(); };
        return h("li", { title: why }, filter ? h("button", { type: "button", onclick: choose }, text) : text);
      }));
      attention.hidden = !shown.length;
    } catch { /* the list says what is wrong */ }
  };
  const count = throttle(countAll, 2000); // over all runs, so not with each entry
  document.addEventListener("news", count);
  document.addEventListener("news", refresh);
  main.replaceChildren(h("h1", {}, "Runs"), attention, h("div", { class: "filters" }, text, counts), problem, list, h("div", { class: "bar" }, compare), more);
  load();
  countAll();
  return () => {
    isClosed = true;
    document.removeEventListener("news", refresh);
    document.removeEventListener("news", count);
  };
}
