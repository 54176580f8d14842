// Settings: what may be set of each agent and engine, its value now and the code's, how it became so, and the way back.

import { get, post } from "./api.js";
import { badge, formatTime, h, say } from "./dom.js";
import { buildButton, buildField, openForm } from "./forms.js";

const LOOK = 3000;
const PARTS = { instructions: "Instructions", enabled: "On or off", limits: "Limits", prompts: "Prompts", option: "Options" };

const show = (value) => (typeof value === "string" ? value || "empty" : value === null ? "none" : JSON.stringify(value));
const isText = (one) => one.part === "prompts" || one.part === "instructions" || typeof one.code === "string";

function shorten(value) {
  const text = show(value).replace(/\s+/g, " ");
  return text.length > 160 ? `${text.slice(0, 159)}…` : text;
}

function buildInput(one) {
  const id = "value";
  const kind = one.part === "enabled" || typeof one.code === "boolean" ? "boolean" : isText(one) ? "text" : typeof one.code === "number" ? "number" : "json";
  const field = {
    boolean: () => h("select", { id }, ...["true", "false"].map((text) => h("option", { value: text, selected: String(one.value) === text }, text))),
    number: () => h("input", { id, type: "number", step: "any", required: true, value: one.value }),
    text: () => h("textarea", { id, rows: Math.min(16, 3 + String(one.value).split("\n").length), value: one.value }),
    json: () => h("textarea", { id, class: "code", rows: 3, spellcheck: "false", value: JSON.stringify(one.value) }),
  }[kind]();
  const read = () => {
    if (kind === "text") return field.value;
    if (kind === "number") return Number(field.value);
    try {
      return JSON.parse(field.value);
    } catch {
      throw new Error("The value is not JSON.");
    }
  };
  return { field, read };
}

export function showSettings(main, session) {
  const reason = session.missing.settings;
  const search = h("input", { type: "search", placeholder: "Find a setting", "aria-label": "Find a setting" });
  const only = h("input", { type: "checkbox", id: "only" });
  const sub = h("p", { class: "sub" });
  const problem = h("p", { class: "problem", role: "alert", hidden: true });
  const owners = h("div", {});
  const history = h("div", {});
  let state = null;
  let opened = null;

  function change(one) {
    const { field, read } = buildInput(one);
    const why = h("input", { id: "why", maxlength: 500, autocomplete: "off" });
    const body = (value) => ({ changes: { [one.name]: value }, reason: why.value, expected: state.version });
    const save = async (value) => {
      const { version } = await post("settings", body(value));
      say(`${one.name}: saved as version ${version}`);
      await load();
    };
    const check = debounceCheck(() => post("settings", { ...body(read()), check: true }));
    openForm({
      title: one.name, submit: "Save", check,
      text: "Runs that begin from now on read it. Runs at work keep what they began with.",
      fields: [
        buildField("Value", field, one.placeholders.length ? `It has the placeholders ${one.placeholders.map((name) => `{${name}}`).join(", ")}.` : null),
        h("details", {}, h("summary", {}, "The code's own value"), h("pre", {}, show(one.code))),
        buildField("Reason, for the history", why),
      ],
      others: one.is_set ? [["Use the code's own value", () => save(null)]] : [],
      send: () => save(read()),
    });
  }

  function revert(version) {
    const why = h("input", { id: "why", maxlength: 500, autocomplete: "off" });
    openForm({
      title: `Back to version ${version}`, submit: "Revert", fields: [buildField("Reason, for the history", why)],
      text: "All settings get the values that they had in that version, as a new version.",
      send: async () => {
        const made = await post("settings", { revert: version, reason: why.value, expected: state.version });
        say(`Version ${made.version} has the settings of version ${version}.`);
        await load();
      },
    });
  }

  function buildRow(one) {
    const short = one.name.split(".").slice(2).join(".").replace(/^(limits|prompts)\./, "");
    return h("li", { class: one.is_set ? "setting set" : "setting" },
      h("span", { class: "name" }, short),
      h("span", { class: "value" }, shorten(one.value), one.is_set && [" ", badge("changed")]),
      buildButton("Edit", state.problem, () => change(one), { "data-setting": one.name, "aria-label": `Edit ${one.name}`, class: "small" }));
  }

  function buildOwner({ owner, settings }) {
    const sought = search.value.trim().toLowerCase();
    const shown = settings.filter((one) => (!only.checked || one.is_set) && one.name.toLowerCase().includes(sought));
    if (!shown.length) return null;
    const count = settings.filter((one) => one.is_set).length;
    const [kind, name] = [owner.split(".")[0], owner.slice(owner.indexOf(".") + 1)];
    const isOpen = opened?.has(owner) ?? (count > 0 || kind === "agent");
    const element = h("details", { class: "owner", open: isOpen || Boolean(sought) || only.checked },
      h("summary", {}, h("b", {}, name), " ", h("span", { class: "sub" }, kind), count > 0 && [" ", badge(`${count} changed`)]),
      ...Object.entries(PARTS).map(([part, title]) => {
        const rows = shown.filter((one) => one.part === part);
        return rows.length > 0 && h("section", {}, h("h2", { class: "eyebrow" }, title), h("ul", {}, ...rows.map(buildRow)));
      }));
    element.dataset.owner = owner;
    return element;
  }

  function drawOwners() {
    const known = [...owners.querySelectorAll("details.owner")];
    if (known.length && !search.value && !only.checked) opened = new Set(known.filter((one) => one.open).map((one) => one.dataset.owner));
    const found = state.owners.map(buildOwner).filter(Boolean);
    owners.replaceChildren(...(found.length ? found : [h("p", { class: "empty" }, only.checked ? "Nothing is changed: every value is the code's own." : "No setting has that name.")]));
  }

  function draw() {
    sub.textContent = `${state.version ? `Version ${state.version}` : "Nothing is set yet"}. A run reads them as it begins and keeps them to its end; each turn of a conversation is a run.`;
    drawOwners();
    const stray = Object.entries(state.unknown);
    const rows = state.history.map((one) => h("tr", {},
      h("td", {}, String(one.version)), h("td", {}, formatTime(one.at)), h("td", {}, one.by),
      h("td", {}, h("b", {}, one.name), h("div", { class: "sub" }, h("del", {}, shorten(one.before)), " → ", h("ins", {}, one.value === null ? "the code's own" : shorten(one.value))), one.reason && h("div", { class: "sub" }, one.reason)),
      h("td", {}, one.version < state.version && buildButton("Revert", state.problem, () => revert(one.version), { class: "small", "aria-label": `Revert to version ${one.version}` }))));
    history.replaceChildren(
      ...(stray.length ? [h("p", { class: "problem" }, `Set, and no longer known to the code: ${stray.map(([name]) => name).join(", ")}`)] : []),
      h("h2", {}, "History"),
      rows.length ? h("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": "Changes, the newest first" }, h("table", { class: "history" },
        h("thead", {}, h("tr", {}, ...["Version", "When", "Who", "What"].map((one) => h("th", { scope: "col" }, one)), h("td", {}))), h("tbody", {}, ...rows)))
        : h("p", { class: "empty" }, "No change yet. Every change is kept here, with who made it and why."));
  }

  async function load() {
    try {
      const found = await get("settings");
      const isSame = state && found.version === state.version;
      state = found;
      problem.hidden = true;
      if (!isSame) draw();
    } catch (error) {
      problem.hidden = false;
      problem.textContent = error.message;
    }
  }

  const head = [h("h1", {}, "Settings"), sub];
  if (reason) {
    main.replaceChildren(h("h1", {}, "Settings"), h("p", { class: "empty" }, `There are no settings here: ${reason}.`));
    return () => {};
  }
  search.addEventListener("input", drawOwners);
  only.addEventListener("change", drawOwners);
  main.replaceChildren(...head, problem, h("div", { class: "filters" }, search, h("label", { class: "check", for: "only" }, only, "only what is changed")), owners, history);
  load();
  const timer = setInterval(load, LOOK);
  return () => clearInterval(timer);
}

// Only the last of several checks counts, and it waits until the typing pauses.
function debounceCheck(work) {
  let last = 0;
  return () => new Promise((resolve, reject) => {
    last += 1;
    const own = last;
    setTimeout(async () => {
      if (own !== last) return;
      try {
        await work();
        if (own === last) resolve();
      } catch (error) {
        if (own === last) reject(error);
      }
    }, 300);
  });
}
