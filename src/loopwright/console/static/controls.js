// The controls of a run. What cannot be done now is greyed out and says why; the server refuses it too.

import { post } from "./api.js";
import { h, say } from "./dom.js";

const FORMS = {
  steer: ["Steer", "An instruction; the model reads it with its next call.", [["text", "Instruction", "area"]]],
  add_context: ["Add context", "A fact; the model reads it with its next call.", [["text", "Fact", "area"]]],
  follow_up: ["Follow up", "A message for the time when the run has its answer.", [["text", "Message", "area"]]],
  override: ["Call a tool", "The call is made before the next model call, gated like any other.", [["tool", "Tool", "tool"], ["arguments", "Arguments (JSON)", "json"]]],
  stop: ["Stop", "The run ends as aborted once its current step is done.", []],
  abort: ["Abort", "What is in flight is cancelled, and the run ends as aborted.", []],
  retry: ["Retry", "The next worker continues the run.", [["reason", "Reason", "text"]]],
  close: ["Close", "The run ends as aborted without its code; nothing is undone.", [["reason", "Reason", "text"]]],
};
const PLAIN = [["pause", "Pause"], ["unpause", "Unpause"], ["resume", "Resume"]];

export async function act(runId, action, body) {
  const answer = await post("control", { run: runId, action, ...body });
  const isQueued = answer.at_work !== false || ["resume", "fork", "retry", "close"].includes(action);
  say(isQueued ? `${action.replace("_", " ")}: done, or before the next step` : `${action.replace("_", " ")}: takes effect when the run is resumed`);
  return answer;
}

function buildField([name, label, kind], tools) {
  const id = `field-${name}`;
  const field = kind === "area" || kind === "json" ? h("textarea", { id, name, rows: 4, required: true }) : h("input", { id, name, required: kind === "tool", list: kind === "tool" ? "tools" : null });
  if (kind === "json") field.value = "{}";
  return [h("label", { for: id }, label), field, kind === "tool" && h("datalist", { id: "tools" }, ...tools.map((one) => h("option", { value: one })))];
}

function openForm(runId, action, tools, before) {
  const [title, text, fields] = FORMS[action];
  const problem = h("p", { class: "problem", role: "alert", hidden: true });
  const form = h("form", {},
    h("h2", { id: "form-title" }, title), h("p", {}, text),
    ...fields.map((one) => buildField(one, tools)), problem,
    h("div", { class: "buttons" },
      h("button", { type: "button", onclick: () => dialog.close() }, "Cancel"),
      h("button", { class: ["abort", "close", "stop"].includes(action) ? "danger" : "primary" }, title)));
  const dialog = h("dialog", { "aria-labelledby": "form-title" }, form);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    try {
      const body = Object.fromEntries(new FormData(form));
      if ("arguments" in body) body.arguments = JSON.parse(body.arguments);
      await act(runId, action, body);
      dialog.close();
    } catch (error) {
      problem.hidden = false;
      problem.textContent = error.message;
    }
  });
  dialog.addEventListener("close", () => { dialog.remove(); before?.focus(); });
  document.body.append(dialog);
  dialog.showModal();
}

export function buildControls(runId, run) {
  const tools = Object.keys(run.tools || {});
  const press = async (action, button) => {
    const reason = run.reasons[action];
    if (reason) return say(`${button.textContent}: ${reason}`);
    if (FORMS[action]) return openForm(runId, action, tools, button);
    try {
      await act(runId, action, {});
    } catch (error) {
      say(error.message);
    }
    return undefined;
  };
  const names = [...PLAIN, ...Object.entries(FORMS).map(([name, [title]]) => [name, title])];
  return h("div", { class: "controls", role: "group", "aria-label": "Controls" }, ...names.map(([name, title]) => {
    const reason = run.reasons[name];
    const button = h("button", { type: "button", "data-action": name, title: reason || null, "aria-disabled": reason ? "true" : null, class: ["abort", "close"].includes(name) ? "danger" : null }, title);
    button.addEventListener("click", () => press(name, button));
    return button;
  }));
}
