// Begin a run, and talk to an agent: a message steers the turn that is at work, or begins the next one.

import { follow, post } from "./api.js";
import { act } from "./controls.js";
import { h, say } from "./dom.js";
import { buildField, buildSelect } from "./forms.js";

const MAX_FILES = 5 * 1024 * 1024;

async function readFile(file) {
  const bytes = new Uint8Array(await file.arrayBuffer());
  let text = "";
  for (let at = 0; at < bytes.length; at += 32768) text += String.fromCharCode(...bytes.subarray(at, at + 32768));
  return { name: file.name, type: file.type, data: btoa(text) };
}

async function readFiles(field) {
  const files = [...field.files];
  if (files.reduce((sum, one) => sum + one.size, 0) > MAX_FILES) throw new Error("Attachments may have 5 MB in all.");
  return Promise.all(files.map(readFile));
}

// The words of a reply as they come, below what the journal has.
function buildLive(list) {
  const text = h("pre", {});
  const item = h("li", { class: "said assistant live", hidden: true }, h("b", {}, "assistant"), text);
  let place = "";
  list.after(h("ol", { class: "talk" }, item));
  return {
    add({ key, attempt, text: words }) {
      if (!words) return;
      if (place !== `${key} ${attempt}`) text.textContent = "";
      place = `${key} ${attempt}`;
      item.hidden = false;
      text.textContent += words;
    },
    clear() {
      place = "";
      text.textContent = "";
      item.hidden = true;
    },
  };
}

export function buildChat(list, name, session, reload) {
  const reason = session.missing.start;
  const live = buildLive(list);
  const problem = h("p", { class: "problem", role: "alert", hidden: true });
  const text = h("textarea", { id: "message", rows: 3, required: true, placeholder: "Write a message. Enter sends it, Shift+Enter begins a line." });
  const files = h("input", { id: "files", type: "file", multiple: true, accept: "image/*,application/pdf" });
  const stop = h("button", { type: "button", "aria-disabled": "true", onclick: () => halt() }, "Stop the reply");
  const agents = h("div", {});
  const form = h("form", { class: "composer", "aria-label": "Message" }, h("label", { class: "visually-hidden", for: "message" }, "Message"), text, problem,
    h("div", { class: "composer-tools" }, agents, h("label", { class: "visually-hidden", for: "files" }, "Attachments"), files,
      h("div", { class: "buttons" }, stop, h("button", { class: "primary", title: reason || null, "aria-disabled": reason ? "true" : null }, "Send"))));
  let running = "";
  let close = () => {};

  async function halt() {
    if (!running) return say("Stop the reply: no turn is at work");
    try {
      await act(running, "stop", {});
    } catch (error) {
      say(error.message);
    }
    return undefined;
  }
  function watch(run) {
    if (run === running) return;
    close();
    running = run;
    if (!run) return;
    close = follow("words", { run }, ({ kind, value }) => {
      if (kind === "words") live.add(value);
      else if (kind === "stood" || kind === "gone") reload();
    }, () => {});
  }
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    problem.hidden = true;
    if (reason) return say(`Send: ${reason}`);
    try {
      const body = { thread: name, agent: form.elements.agent.value, text: text.value, attachments: await readFiles(files) };
      watch((await post("message", body)).run);
      text.value = "";
      files.value = "";
      reload();
    } catch (error) {
      problem.hidden = false;
      problem.textContent = error.message;
    }
    return undefined;
  });
  text.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    form.requestSubmit();
  });
  return {
    form,
    close: () => close(),
    show(turns) {
      const last = turns.at(-1);
      const isAtWork = last?.status === "running";
      if (!agents.childElementCount) agents.replaceChildren(h("label", { class: "check" }, "Agent ", h("select", { name: "agent" }, ...session.agents.map((one) => h("option", { value: one, selected: one === last?.agent }, one)))));
      if (!isAtWork) live.clear();
      if (!reason) watch(isAtWork ? last.run_id : "");
      stop.setAttribute("aria-disabled", String(!isAtWork));
    },
  };
}

export function showStart(main, session) {
  const reason = session.missing.start;
  const problem = h("p", { class: "problem", role: "alert", hidden: true });
  const note = reason ? h("p", { class: "note", role: "note" }, `Starting from the page ${reason}.`) : null;
  const choose = (event) => { location.hash = `#/thread/${encodeURIComponent(event.target.elements.thread.value.trim())}`; };
  const talk = h("form", { class: "start", onsubmit: (event) => { event.preventDefault(); choose(event); } },
    h("h2", {}, "Talk to an agent"), h("p", {}, "A conversation that the journal keeps, under a name of your choice."),
    buildField("Name of the conversation", h("input", { id: "thread", name: "thread", required: true, maxlength: 256, autocomplete: "off" })),
    h("div", { class: "buttons" }, h("button", { class: "primary" }, "Open")));
  const models = h("div", { class: "fields" });
  const task = h("form", { class: "start" }, h("h2", {}, "Run a task"), h("p", {}, "An agent or an engine works on it until it has an answer."),
    buildSelect("who", "Agent or engine", [...session.agents.map((one) => `agent ${one}`), ...session.engines.map((one) => `engine ${one}`)]),
    models,
    buildField("Task", h("textarea", { id: "task", name: "text", rows: 4, required: true })), problem,
    h("div", { class: "buttons" }, h("button", { class: "primary", title: reason || null, "aria-disabled": reason ? "true" : null }, "Start")));
  const showModels = () => {
    const [kind, ...rest] = task.elements.who.value.split(" ");
    const isEngine = kind === "engine";
    const parts = (isEngine && session.parts?.[rest.join(" ")]) || [];
    const build = (part, label, own) => buildSelect(`model-${part}`, label, [["", own], ...session.models.map((one) => [one, `${one} (${session.served[one]})`])], "");
    const first = session.models?.length ? [build("model", "Model", isEngine ? `that of the runtime (${session.served[""]})` : "that of the agent")] : [];
    models.replaceChildren(...first, ...parts.map((part) => build(part, `Model of its ${part}`, "the same")));
  };
  task.elements.who.addEventListener("change", showModels);
  showModels();
  task.addEventListener("submit", async (event) => {
    event.preventDefault();
    if (reason) return say(`Start: ${reason}`);
    const [kind, ...rest] = task.elements.who.value.split(" ");
    try {
      const chosen = Object.fromEntries([...models.querySelectorAll("select")].filter((one) => one.value).map((one) => [one.id.replace("model-", ""), one.value]));
      const { run } = await post("start", { [kind]: rest.join(" "), models: chosen, text: task.elements.text.value });
      location.hash = `#/run/${encodeURIComponent(run)}`;
    } catch (error) {
      problem.hidden = false;
      problem.textContent = error.message;
    }
    return undefined;
  });
  main.replaceChildren(h("h1", {}, "Start"), ...[note].filter(Boolean), h("div", { class: "starts" }, talk, task));
  return () => {};
}
