// All of one entry: its lines, and the raw entry behind them; of a model call, what was sent.

import { get, post } from "./api.js";
import { formatTime, h, say } from "./dom.js";
import { buildButton } from "./forms.js";

export function pretty(value) {
  return JSON.stringify(value, null, 2);
}

// What of the conversation the context policy did not send: how many messages, and which where the entry says so.
function describeTrimmed(record) {
  const [leftOut, masked, view] = [record?.left_out || 0, record?.masked || 0, record?.view];
  if (!leftOut && !masked) return null;
  const spans = (view?.spans || []).map(([first, behind]) => (behind === first + 1 ? `${behind}` : `${first + 1} to ${behind}`)).join(", ");
  const parts = [leftOut && `${leftOut} messages left out`, masked && `${masked} results masked`].filter(Boolean).join(", ");
  return h("p", { class: "note left-out" }, `Context policy: ${parts}${spans ? `; of ${view.length} messages, ${spans} were sent` : ""}.`);
}

// A message as the model read it: its thinking, its text, the calls in it, and what is attached.
function buildMessage({ role, origin, content, calls = [], thinking, attachments = [] }) {
  return h("div", { class: "message" }, h("b", {}, origin === role ? role : `${role} (${origin})`),
    thinking && h("details", {}, h("summary", {}, "Thinking"), h("pre", {}, thinking)),
    content && h("pre", {}, content),
    ...calls.map((one) => h("pre", { class: "called" }, `calls ${one.name}(${pretty(one.arguments)})`)),
    ...attachments.map((one) => h("p", { class: "sub" }, `attached: ${one}`)));
}

function buildMessages(request, record) {
  if (!request) return null;
  if (request.error) return h("p", { class: "sub" }, `What was sent cannot be shown: ${request.error}`);
  return h("details", { open: true }, h("summary", {}, `Prompt as sent: ${request.messages.length} messages, ${request.tools.length} tools`),
    describeTrimmed(record), request.redacted && h("p", { class: "sub" }, "A secret that was sent is left out."),
    ...request.messages.map(buildMessage),
    h("details", {}, h("summary", {}, "Tools and settings"), h("pre", {}, pretty({ tools: request.tools, sampling: request.sampling }))));
}

export async function showEntry(panel, runId, seq, row, { fork, reason, changed }) {
  panel.hidden = false;
  const title = h("h2", { tabindex: "-1" }, `Entry ${seq}`);
  const close = h("button", { type: "button", onclick: () => { panel.hidden = true; changed(); } }, "Close");
  panel.replaceChildren(h("div", { class: "panel-head" }, title, close), h("p", {}, "reading"));
  let entry;
  try {
    entry = await get("entry", { run: runId, seq });
  } catch (error) {
    const reveal = buildButton("Show what is hidden of this run (recorded)", reason(), async () => {
      await post("reveal", { run: runId });
      say("Shown; the access file says who asked.");
      changed();
      showEntry(panel, runId, seq, row, { fork, reason, changed });
    });
    panel.replaceChildren(h("div", { class: "panel-head" }, title, close), h("p", { class: "problem" }, error.message), ...(error.status === 409 ? [reveal] : []));
    return;
  }
  panel.replaceChildren(
    h("div", { class: "panel-head" }, title, close),
    h("p", { class: "sub" }, `${entry.kind.replaceAll("_", " ")} · ${entry.key || "the run as a whole"} · ${formatTime(entry.at)} · owner ${entry.fence}`),
    ...(row?.lines || []).map((line) => h("div", { class: "line" }, h("b", {}, line.label), h("pre", {}, line.text), line.cut && h("p", { class: "sub" }, `${line.cut} characters; all of them are in the raw entry`))),
    ...[buildMessages(entry.request, entry.body?.request)].filter(Boolean),
    h("details", { open: !row?.lines?.length }, h("summary", {}, "Raw entry"), h("pre", { class: "raw" }, pretty(entry.body)), h("p", { class: "sub hash" }, entry.hash)),
    fork(seq));
  title.focus();
}
