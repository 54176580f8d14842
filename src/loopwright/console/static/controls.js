// The controls of a run. What cannot be done now is greyed out and says why; the server refuses it too.

import { get, post } from "./api.js";
import { h, say } from "./dom.js";
import { SchemaFields, buildButton, buildField, openForm } from "./forms.js";

const FORMS = {
  steer: ["Steer", "An instruction; the model reads it with its next call.", [["text", "Instruction", "area"]]],
  add_context: ["Add context", "A fact; the model reads it with its next call.", [["text", "Fact", "area"]]],
  follow_up: ["Follow up", "A message for the time when the run has its answer.", [["text", "Message", "area"]]],
  override: ["Call a tool", "The call is made before the next model call, gated like any other; the model reads its result.", []],
  stop: ["Stop", "The run ends as aborted once its current step is done.", []],
  abort: ["Abort", "What is in flight is cancelled, and the run ends as aborted.", []],
  retry: ["Retry", "The next worker continues the run.", [["reason", "Reason", "text"]]],
  close: ["Close", "The run ends as aborted without its code; nothing is undone.", [["reason", "Reason", "text"]]],
};
const GROUPS = [["pause", "unpause", "resume", "retry"], ["steer", "add_context", "follow_up", "override"], ["stop", "abort", "close"]];
const TITLES = { pause: "Pause", unpause: "Unpause", resume: "Resume" };
const DANGER = ["abort", "close", "stop"];

export async function act(runId, action, body) {
  const answer = await post("control", { run: runId, action, ...body });
  const isQueued = answer.at_work !== false || ["resume", "fork", "retry", "close"].includes(action);
  say(isQueued ? `${action.replace("_", " ")}: done, or before the next step` : `${action.replace("_", " ")}: takes effect when the run is resumed`);
  return answer;
}

function buildInput([name, label, kind]) {
  const id = `field-${name}`;
  return buildField(label, kind === "area" ? h("textarea", { id, name, rows: 4, required: true }) : h("input", { id, name }));
}

function openCommand(runId, action) {
  const [title, text, fields] = FORMS[action];
  openForm({ title, text, danger: DANGER.includes(action), fields: fields.map(buildInput), send: (form) => act(runId, action, Object.fromEntries(new FormData(form))) });
}

// A call that a person makes: the fields are those of the tool's schema, or JSON for a tool whose schema the journal lacks.
async function openOverride(runId) {
  const [title, text] = FORMS.override;
  const { tools } = await get("tools", { run: runId });
  const select = h("select", { id: "tool", name: "tool" }, ...tools.map((one) => h("option", { value: one.name }, one.effect ? `${one.name} (${one.effect})` : one.name)));
  const typed = h("input", { id: "tool", name: "tool", required: true, autocomplete: "off" });
  const about = h("p", { class: "sub" });
  const place = h("div", {});
  let fields = null;
  const choose = () => {
    const tool = tools.find((one) => one.name === select.value);
    const hasSchema = Object.keys(tool?.schema || {}).length > 0;
    about.textContent = tool?.description || "";
    fields = hasSchema ? new SchemaFields(tool.schema) : buildJson();
    place.replaceChildren(fields.element);
  };
  select.addEventListener("change", choose);
  choose();
  openForm({ title, text, fields: [buildField("Tool", tools.length ? select : typed), about, place], send: (form) => act(runId, "override", { tool: form.elements.tool.value, arguments: fields.read() }) });
}

function buildJson() {
  const field = h("textarea", { id: "arguments", class: "code", rows: 4, required: true, spellcheck: "false", value: "{}" });
  return { element: buildField("Arguments as JSON", field), read: () => JSON.parse(field.value) };
}

export function buildControls(runId, run) {
  const press = async (action) => {
    try {
      if (action === "override") await openOverride(runId);
      else if (FORMS[action]) openCommand(runId, action);
      else await act(runId, action, {});
    } catch (error) {
      say(error.message);
    }
  };
  const build = (name) => buildButton(TITLES[name] || FORMS[name][0], run.reasons[name], () => press(name), { "data-action": name, class: DANGER.includes(name) ? "danger" : null });
  const remove = buildButton("Delete", run.delete, () => openForm({
    title: "Delete this run", submit: "Delete", danger: true, fields: [], text: "All its entries are gone for good; the access file keeps who deleted it.",
    send: async () => {
      await post("delete", { run: runId });
      location.hash = "#/";
      say(`${runId}: deleted`);
    },
  }), { "data-action": "delete", class: "danger" });
  const groups = GROUPS.map((names) => h("span", { class: "control-group" }, ...names.map(build)));
  groups.at(-1).append(remove);
  return h("div", { class: "controls", role: "group", "aria-label": "Controls" }, ...groups);
}
