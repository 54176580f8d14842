// Schedules: tasks at the times of a cron line, with their next time and their last run.

import { get, post } from "./api.js";
import { badge, formatAge, formatTime, h, say, throttle } from "./dom.js";
import { buildButton, buildField, buildSelect, openForm } from "./forms.js";

const MISSED = [["once", "one run makes up for all of them"], ["skip", "none; the next time fires"], ["all", "each gets its run"]];
const OVERLAP = [["skip", "no run"], ["queue", "one run after it"]];

function describeNext(one) {
  if (one.paused) return "Paused: its times pass.";
  if (one.problem) return one.problem;
  if (one.line.length) return "Waits for a worker that has its agent, or for the end of its last run.";
  if (!one.next_at) return "It never fires again.";
  const left = one.next_at - Date.now() / 1000;
  return `Next ${formatTime(one.next_at)}${left > 0 ? `, in ${formatAge(left)}` : ": a worker is due to begin it"}`;
}

export function showSchedules(main, session) {
  const reason = session.missing.schedules;
  const list = h("ul", { class: "cards schedules" });
  const problem = h("p", { class: "problem", role: "alert", hidden: true });
  const add = h("span", {});
  let state = null;
  let drawn = "";

  const send = async (name, action) => {
    try {
      const done = await post("schedule", { name, action });
      say({ run: `${name}: a worker begins ${done.run} now`, pause: `${name}: paused`, unpause: `${name}: continues with its next time`, delete: `${name}: deleted` }[action]);
      await load();
    } catch (error) {
      say(error.message);
    }
  };

  function edit(known) {
    const value = known || { name: "", agent: state.agents[0], task: "", cron: "0 9 * * 1-5", zone: Intl.DateTimeFormat().resolvedOptions().timeZone || "UTC", missed: "once", overlap: "skip" };
    const name = h("input", { id: "name", name: "name", required: true, maxlength: 64, pattern: "[A-Za-z0-9][A-Za-z0-9_\\-]*", autocomplete: "off", value: value.name, readonly: Boolean(known) });
    const agents = state.agents.includes(value.agent) ? state.agents : [value.agent, ...state.agents];
    openForm({
      title: known ? `Change ${known.name}` : "Add a schedule", submit: "Save",
      fields: [
        buildField("Name", name, known ? null : "Letters, digits, _ and -"),
        buildSelect("agent", "Agent or engine", agents, value.agent),
        buildField("Task", h("textarea", { id: "task", name: "task", rows: 3, required: true, value: value.task })),
        h("div", { class: "pair" },
          buildField("Times", h("input", { id: "cron", name: "cron", class: "code", required: true, value: value.cron }), "minute hour day month weekday"),
          buildField("Time zone", h("input", { id: "zone", name: "zone", required: true, value: value.zone }))),
        h("div", { class: "pair" },
          buildSelect("missed", "For times without a worker", MISSED, value.missed),
          buildSelect("overlap", "While its last run is at work", OVERLAP, value.overlap)),
      ],
      send: async (form) => {
        await post("schedule", { action: "add", ...Object.fromEntries(new FormData(form)) });
        say(`${name.value}: saved`);
        await load();
      },
    });
  }

  function remove(one) {
    openForm({ title: `Delete ${one.name}`, submit: "Delete", danger: true, text: "It fires no more. The runs that it began stay.", fields: [], send: () => send(one.name, "delete") });
  }

  function buildCard(one) {
    const last = one.last_run && h("span", {}, "Last run ", h("a", { href: `#/run/${encodeURIComponent(one.last_run)}` }, one.last_run), " ", one.last_status && badge(one.last_status));
    const press = (title, work, properties) => buildButton(title, state.problem, work, { class: "small", "aria-label": `${title}: ${one.name}`, ...properties });
    return h("li", { "data-schedule": one.name },
      h("div", { class: "card-head" }, h("h2", {}, one.name), badge(one.paused ? "paused" : "active"),
        h("span", { class: "card-buttons" },
          press("Run now", () => send(one.name, "run")),
          one.paused ? press("Unpause", () => send(one.name, "unpause")) : press("Pause", () => send(one.name, "pause")),
          press("Edit", () => edit(one)), press("Delete", () => remove(one), { class: "small danger" }))),
      h("p", { class: "task-text" }, one.task),
      h("p", { class: "sub" }, h("code", {}, one.cron), ` ${one.zone} · ${one.agent}${one.by ? ` · by ${one.by}` : ""}`),
      h("p", { class: "sub" }, [describeNext(one), one.skipped && `${one.skipped} times had no run`].filter(Boolean).join(" · "), last && [" · ", last]));
  }

  function draw() {
    const now = JSON.stringify(state);
    if (now === drawn) return;
    drawn = now;
    add.replaceChildren(buildButton("Add a schedule", state.problem, () => edit(null), { id: "add", class: "primary" }));
    list.replaceChildren(...(state.schedules.length ? state.schedules.map(buildCard)
      : [h("li", { class: "empty" }, "No schedules yet. One has an agent work on a task at set times, once over all workers.")]));
  }

  async function load() {
    try {
      state = await get("schedules");
      problem.hidden = true;
      draw();
    } catch (error) {
      problem.hidden = false;
      problem.textContent = error.message;
    }
  }

  if (reason) {
    main.replaceChildren(h("h1", {}, "Schedules"), h("p", { class: "empty" }, `There are no schedules here: ${reason}.`));
    return () => {};
  }
  const refresh = throttle(load, 400);
  document.addEventListener("news", refresh);
  main.replaceChildren(h("div", { class: "title" }, h("h1", {}, "Schedules"), add), problem, list);
  load();
  return () => document.removeEventListener("news", refresh);
}
