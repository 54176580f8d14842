// One run: how it stands, its controls, and its entries as they come.

import { follow, get } from "./api.js";
import { openApproval } from "./approvals.js";
import { act, buildControls } from "./controls.js";
import { badge, debounce, formatCost, formatNumber, h, say, throttle } from "./dom.js";
import { showEntry } from "./entry.js";
import { buildFacts } from "./facts.js";
import { buildButton, buildField, buildSelect, openForm } from "./forms.js";
import { buildPlan, buildTree } from "./graph.js";
import { Timeline } from "./timeline.js";

const KINDS = [
  ["everything", []],
  ["models", ["model_requested", "model_replied", "model_failed", "attempt_failed", "model_waiting"]],
  ["tools", ["gate_decided", "tool_started", "tool_finished", "recovery_triggered", "call_dead_lettered", "doubt_resolved"]],
  ["people", ["command_received", "followed_up", "run_paused", "run_continued", "declassified", "question_withdrawn"]],
  ["facts", ["fact_noted", "drift_noticed", "effect_finished"]],
  ["children", ["child_started", "child_finished"]],
  ["trouble", ["model_failed", "attempt_failed", "model_waiting", "limit_hit", "breaker_changed", "drift_noticed", "recovery_triggered", "call_dead_lettered", "run_parked"]],
];

function buildHead(run, verify) {
  const total = run.total || {};
  const links = [
    run.parent_run && h("a", { href: `#/compare/${encodeURIComponent(run.parent_run)}/${encodeURIComponent(run.run_id)}` }, `fork of ${run.parent_run} after ${run.fork_seq}: compare`),
    run.thread && h("a", { href: `#/thread/${encodeURIComponent(run.thread)}` }, `thread ${run.thread}`),
    run.follows && h("a", { href: `#/run/${encodeURIComponent(run.follows)}` }, "the run before"),
  ].filter(Boolean);
  const why = run.ending?.error || (run.ending && run.ending.stop_reason !== "answered" ? run.ending.stop_reason : "") || run.damage;
  return h("div", { class: "head" },
    h("p", { class: "crumbs" }, badge(run.paused ? "paused" : run.status), run.orphaned && badge("orphaned"), " ", h("span", { class: "id" }, run.run_id), ...links, h("span", { class: "space-between" }), verify),
    h("h1", {}, run.task || run.run_id),
    h("p", { class: "sub" }, [run.agent && `agent ${run.agent}`, run.engine, `${formatNumber(run.entries)} entries`, ...(run.unread ? ["the rest is being read …"] : [`${formatNumber(total.calls)} model call${total.calls === 1 ? "" : "s"}`, `${formatNumber(total.input_tokens)} + ${formatNumber(total.output_tokens)} tokens`, `cost ${formatCost(run.cost)}`, run.settings && `settings version ${run.settings}`, ...Object.entries(run.counts || {}).map(([name, count]) => `${count} ${name.replace("_", " ")}`)])].filter(Boolean).join(" · ")),
    why && h("p", { class: "why" }, why),
    run.hidden && h("p", { class: "note" }, "This run has read something secret: what models, tools and people wrote is hidden. Open an entry to ask for it."),
    run.answer && h("details", { open: true, class: "answer" }, h("summary", {}, "Answer"), h("pre", {}, run.answer)));
}

function buildWaiting(run) {
  const questions = (run.questions || []).map((one) => ({ run_id: run.run_id, ...one }));
  const buttons = questions.map((one) => h("button", { type: "button", class: "waiting has", "data-question": one.id, onclick: () => openApproval(questions, one) },
    one.about === "approval" ? `Decide: ${one.tool}` : one.about === "question" ? "Answer its question" : `What became of ${one.tool}?`));
  const sent = (run.unreceived || []).map((one) => h("li", {}, `${one.kind.replace("_", " ")}: sent, the run has not received it yet`));
  return [buttons.length ? h("div", { class: "asks" }, ...buttons) : null, sent.length ? h("ul", { class: "sent" }, ...sent) : null];
}

function buildList(items, empty) {
  return items.length ? h("ul", { class: "cards" }, ...items) : h("p", { class: "empty" }, empty);
}

const TABS = {
  timeline: "Timeline",
  plan: "Plan",
  tree: "Tree",
  children: "Sub-agents",
  facts: "Facts",
  costs: "Costs",
};

const CONTENTS = {
  plan: buildPlan,
  tree: buildTree,
  children: (run) => buildList((run.children || []).map((one) => h("li", {}, badge(one.status), h("b", {}, one.name), h("p", {}, one.about), h("span", { class: "sub" }, one.key))), "No engine or agent works for this run."),
  facts: buildFacts,
  costs: (run) => h("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": "Costs by model" }, h("table", {}, h("thead", {}, h("tr", {}, ...["Model", "Day", "Calls", "Tokens", "Cost"].map((one) => h("th", { scope: "col" }, one)))),
    h("tbody", {}, ...(run.spending || []).map((one) => h("tr", {}, h("td", {}, one.model), h("td", {}, one.day), h("td", {}, formatNumber(one.calls)), h("td", {}, formatNumber(one.input_tokens + one.output_tokens)), h("td", {}, one.is_priced ? formatCost(one.cost) : "–")))))),
};

export function showRun(main, runId, session, firstSeq) {
  const head = h("div", {}, h("p", { class: "sub" }, "Reading the run …"));
  const waiting = h("div", {});
  const controls = h("div", {});
  const other = h("div", { class: "other", hidden: true });
  const panel = h("section", { class: "panel", hidden: true, "aria-label": "Entry" });
  const badgeOfChain = h("button", { type: "button", class: "chain" }, "Verify the chain");
  const search = h("input", { type: "search", placeholder: "Search entries", "aria-label": "Search entries" });
  const kinds = h("select", { "aria-label": "Which entries" }, ...KINDS.map(([name], index) => h("option", { value: String(index) }, name)));
  const found = h("span", { class: "sub", role: "status" });
  const filters = h("div", { class: "filters" }, search, kinds, found);
  let stop = () => {};
  let isClosed = false;
  let tab = "timeline";
  let last = null;

  const timeline = new Timeline(runId, (seq) => showEntry(panel, runId, seq, timeline.rows.get(seq), { fork: buildFork, reason: () => last?.reveal, changed }));
  const changed = () => {
    timeline.forget();
    read();
    timeline.element.focus();
  };
  const buildFork = (seq) => {
    return buildButton("Fork after this entry", last?.reasons.fork, () => openForm({
      title: `Fork after entry ${seq}`, submit: "Fork", text: "A new run shares the entries up to this one and continues; the run itself does not change.",
      fields: [
        buildField("Other words", h("textarea", { id: "fork-text", name: "text", rows: 3 }), "An instruction that the model reads with its next call; leave it empty to continue as it was."),
        buildSelect("engine", "Engine", [["", "as it is"], ...session.engines.map((one) => [one, `${one}: begins anew with the task`])], ""),
      ],
      send: async (form) => {
        const { run } = await act(runId, "fork", { at: seq, text: form.elements.text.value.trim(), engine: form.elements.engine.value });
        location.hash = `#/run/${encodeURIComponent(run)}`;
      },
    }));
  };
  const tabs = h("div", { class: "tabs", role: "tablist", "aria-label": "Views of the run" }, ...Object.entries(TABS).map(([name, title]) => h("button", {
    type: "button", role: "tab", id: `tab-${name}`, "aria-selected": String(name === "timeline"), "aria-controls": "tabpanel", onclick: () => choose(name),
  }, title)));
  tabs.addEventListener("keydown", (event) => {
    const names = Object.keys(TABS);
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    choose(names[(names.indexOf(tab) + step + names.length) % names.length]);
    document.getElementById(`tab-${tab}`).focus();
  });
  const choose = (name) => {
    tab = name;
    for (const one of tabs.children) {
      one.setAttribute("aria-selected", String(one.id === `tab-${name}`));
      one.tabIndex = one.id === `tab-${name}` ? 0 : -1;
    }
    const isTimeline = name === "timeline";
    timeline.element.hidden = !isTimeline;
    filters.hidden = !isTimeline;
    other.hidden = isTimeline;
    if (!isTimeline && last) other.replaceChildren(...buildContent(last));
  };
  const buildContent = (run) => [run.unread ? h("p", { class: "note", role: "status" }, `${formatNumber(run.unread)} entries are not read yet.`) : null, CONTENTS[tab](run)].filter(Boolean);
  const read = async () => {
    try {
      const run = await get("run", { run: runId });
      if (!isClosed) draw(run);
    } catch (error) {
      head.replaceChildren(h("div", { class: "problem", role: "alert" }, h("h1", {}, "This run cannot be shown"), h("p", {}, error.message), h("p", {}, h("a", { href: "#/" }, "All runs"))));
    }
  };
  const draw = (run) => {
    const isSame = last && JSON.stringify(last.reasons) === JSON.stringify(run.reasons);
    last = run;
    document.title = `${run.task || runId} – Loopwright console`;
    head.replaceChildren(buildHead(run, badgeOfChain));
    waiting.replaceChildren(...buildWaiting(run).filter(Boolean));
    if (!isSame) controls.replaceChildren(buildControls(runId, run));
    if (tab !== "timeline") other.replaceChildren(...buildContent(run));
    if (run.unread) setTimeout(() => { if (!isClosed) reread(); }, 300);
  };
  const reread = throttle(read, 200);
  const seek = debounce(async () => {
    const sought = search.value.trim();
    const kind = KINDS[Number(kinds.value)][1];
    if (!sought && !kind.length) {
      found.textContent = "";
      return timeline.filter(null);
    }
    const { seqs } = await get("search", { run: runId, text: sought, kind });
    found.textContent = `${formatNumber(seqs.length)} entries`;
    return timeline.filter(seqs);
  }, 200);
  const seekAgain = throttle(seek, 1000);
  search.addEventListener("input", seek);
  kinds.addEventListener("change", seek);
  badgeOfChain.addEventListener("click", async () => {
    const answer = await get("verify", { run: runId });
    badgeOfChain.textContent = answer.ok ? `Chain intact: ${formatNumber(answer.entries)} entries` : `Damaged: ${answer.problem}`;
    badgeOfChain.classList.toggle("ok", answer.ok);
    badgeOfChain.classList.toggle("bad", !answer.ok);
    badgeOfChain.title = answer.head;
  });
  const receive = (event) => {
    if (event.kind === "entry") {
      timeline.add(event.value);
      if (timeline.seqs) seekAgain();
    }
    if (event.kind === "gone") say("The run was deleted.");
    if (event.kind === "broken") say(event.value.error);
    if (event.kind !== "open") reread();
  };
  const watchQuestions = () => reread();
  document.addEventListener("questions", watchQuestions);

  main.replaceChildren(head, waiting, controls, tabs, filters,
    h("div", { class: "stage", id: "tabpanel", role: "tabpanel", "aria-labelledby": "tab-timeline" }, h("div", { class: "views" }, timeline.element, other), panel));
  choose("timeline");
  (async () => {
    await read();
    if (isClosed || !last) return;
    timeline.count = last.entries;
    timeline.schedule();
    if (firstSeq) timeline.reveal(firstSeq);
    stop = follow("events", { run: runId, after: last.entries }, receive, () => {});
  })();
  return () => {
    isClosed = true;
    stop();
    timeline.close();
    document.removeEventListener("questions", watchQuestions);
  };
}
