// The modal in which a person decides: the exact arguments, the policy's reason, how long the question is open.

import { get, post } from "./api.js";
import { act } from "./controls.js";
import { pretty } from "./entry.js";
import { formatAge, formatTime, h, say } from "./dom.js";

let open = null;

function buildArguments(given) {
  const names = Object.keys(given);
  if (!names.length) return h("p", {}, "no arguments");
  return h("dl", { class: "arguments" }, ...names.flatMap((name) => [
    h("dt", {}, name),
    h("dd", {}, h("pre", {}, typeof given[name] === "string" ? given[name] : pretty(given[name]))),
  ]));
}

function listChanges(before, after) {
  const names = [...new Set([...Object.keys(before), ...Object.keys(after)])];
  return names.filter((name) => JSON.stringify(before[name]) !== JSON.stringify(after[name]))
    .map((name) => h("li", {}, h("b", {}, name), ": ", h("del", {}, name in before ? JSON.stringify(before[name]) : "nothing"), " → ", h("ins", {}, name in after ? JSON.stringify(after[name]) : "nothing")));
}

// What is approved for a whole thread and holds now, each with a button that revokes it.
export function buildApprovals(thread) {
  const list = h("ul", { class: "approvals" }, h("li", {}, "Reading …"));
  const revoke = (one) => async (event) => {
    event.target.disabled = true;
    try {
      await post("revoke", { thread, approval: one.id });
      say("revoke: sent");
    } catch (error) {
      say(error.message);
    }
    await load();
  };
  const build = (one) => h("li", { "data-approval": one.id },
    h("p", {}, h("b", {}, one.tool), ` by ${one.by || "no name"}, until ${formatTime(one.until)}, `, h("a", { href: `#/run/${encodeURIComponent(one.run_id)}` }, "given here")),
    one.hidden ? h("p", { class: "sub" }, "Its arguments may hold something secret.") : buildArguments(one.arguments),
    one.problem ? h("p", { class: "sub" }, one.problem) : h("button", { type: "button", class: "danger", "aria-label": `Revoke the approval of ${one.tool} by ${one.by || "no name"}`, onclick: revoke(one) }, "Revoke"));
  const load = async () => {
    try {
      const { approvals } = await get("approvals", { thread });
      list.replaceChildren(...(approvals.length ? approvals.map(build) : [h("li", { class: "empty" }, "Nothing is approved for the thread.")]));
    } catch (error) {
      list.replaceChildren(h("li", { class: "problem" }, error.message));
    }
  };
  load();
  return list;
}

export function openApprovals(thread) {
  const before = document.activeElement;
  const dialog = h("dialog", { class: "decision", "aria-labelledby": "approvals-title" },
    h("h2", { id: "approvals-title", tabindex: "-1" }, "Approved for the thread"),
    h("p", { class: "sub" }, "Calls of these tools to the same destinations run without a question."),
    buildApprovals(thread),
    h("div", { class: "buttons" }, h("button", { type: "button", onclick: () => dialog.close() }, "Close")));
  dialog.addEventListener("click", (event) => { if (event.target.closest("a")) dialog.close(); });
  dialog.addEventListener("close", () => {
    dialog.remove();
    before?.focus();
  });
  document.body.append(dialog);
  dialog.showModal();
  dialog.querySelector("h2").focus();
}

class Decision {
  constructor(question, count, next) {
    this.question = question;
    this.next = next;
    this.problem = h("p", { class: "problem", role: "alert", hidden: true });
    this.left = h("p", { class: "sub", role: "timer" });
    this.changes = h("ul", { class: "changes" });
    this.editor = h("textarea", { id: "edited", rows: 8, spellcheck: "false" });
    this.editor.value = pretty(question.arguments);
    this.editor.addEventListener("input", () => this.compare());
    this.reason = h("input", { id: "reason" });
    this.seconds = h("input", { id: "seconds", type: "number", min: "1", value: "600" });
    this.isGrant = h("input", { id: "grant", type: "checkbox" });
    this.scope = h("select", { id: "scope", "aria-label": "Where it holds" }, h("option", { value: "run" }, "in this run"),
      !!question.thread && h("option", { value: "thread" }, "in this run and the later turns of its thread"));
    this.text = h("textarea", { id: "answer", rows: 3 });
    const parts = { approval: () => this.buildApproval(), question: () => this.buildAnswer() };
    this.dialog = h("dialog", { class: "decision", "aria-labelledby": "decision-title", "data-question": question.id },
      h("h2", { id: "decision-title", tabindex: "-1" }, this.title),
      h("p", { class: "sub" }, "Run ", h("a", { href: `#/run/${encodeURIComponent(question.run_id)}`, onclick: () => this.dialog.close() }, question.run_id), ` · ${question.key}`, count > 1 && ` · ${count} questions wait`),
      question.hidden && h("p", { class: "problem" }, "The run holds something secret: open it and ask for what is hidden before you decide."),
      question.text && h("p", { class: "reason" }, question.text),
      this.left,
      ...(parts[question.about] || (() => this.buildOutcome()))());
    this.timer = setInterval(() => this.tick(), 1000);
    this.watch = (event) => this.check(event.detail);
    document.addEventListener("questions", this.watch);
    this.dialog.addEventListener("close", () => this.end());
    this.tick();
  }

  get title() {
    const { about, tool } = this.question;
    return { approval: `May ${tool} be called?`, question: "The run asks you" }[about] || `What became of ${tool}?`;
  }

  buildApproval() {
    return [
      h("h3", {}, "Arguments, all of them"), buildArguments(this.question.arguments),
      this.question.proposed && [h("h3", {}, "What policy changed of what the model proposed"), h("ul", { class: "changes" }, ...listChanges(this.question.proposed, this.question.arguments))],
      h("div", { class: "buttons first" },
        h("button", { type: "button", class: "primary", id: "approve", onclick: () => this.approve() }, "Approve"),
        h("button", { type: "button", onclick: () => this.dialog.close() }, "Decide later")),
      h("details", {}, h("summary", {}, "Approve with other arguments"),
        h("label", { for: "edited" }, "Arguments as JSON; they are checked and gated again"), this.editor, this.changes),
      h("details", {}, h("summary", {}, "Approve calls of this tool to the same destinations"),
        h("p", {}, this.isGrant, h("label", { for: "grant" }, " approve them for "), this.seconds, h("label", { for: "seconds" }, " seconds")),
        this.scope),
      !!this.question.thread && this.buildHeld(),
      h("div", { class: "deny" }, h("label", { for: "reason" }, "Reason to deny; the model reads it"), this.reason,
        h("button", { type: "button", class: "danger", id: "deny", onclick: () => this.send("deny", { reason: this.reason.value }) }, "Deny")),
      this.problem];
  }

  buildHeld() {
    const held = h("details", { class: "held" }, h("summary", {}, "What is approved for the thread"));
    held.addEventListener("toggle", () => { if (held.open && held.children.length === 1) held.append(buildApprovals(this.question.thread)); });
    return held;
  }

  buildAnswer() {
    const { choices = [], schema, problem } = this.question;
    const choose = (text) => () => { this.text.value = text; };
    return [h("label", { for: "answer" }, "Answer"), this.text,
      choices.length > 0 && h("div", { class: "buttons" }, ...choices.map((text) => h("button", { type: "button", class: "choice", onclick: choose(text) }, text))),
      schema && Object.keys(schema).length > 0 && h("p", { class: "sub" }, `As JSON that fits ${JSON.stringify(schema)}`),
      problem && h("p", { class: "problem" }, `The last answer: ${problem}`), this.problem,
      h("div", { class: "buttons" }, h("button", { type: "button", onclick: () => this.dialog.close() }, "Later"),
        h("button", { type: "button", class: "primary", onclick: () => this.send("answer", { text: this.text.value, question: this.question.key }) }, "Answer"))];
  }

  buildOutcome() {
    const resolve = (verdict) => this.send("resolve", { verdict, result: this.text.value, question: this.question.key });
    return [buildArguments(this.question.arguments), h("label", { for: "answer" }, "Result, if the call took effect"), this.text, this.problem,
      h("div", { class: "buttons" },
        h("button", { type: "button", onclick: () => resolve("unknown") }, "Not known"),
        h("button", { type: "button", onclick: () => resolve("not_done") }, "It took no effect"),
        h("button", { type: "button", class: "primary", onclick: () => resolve("done") }, "It took effect"))];
  }

  compare() {
    try {
      this.changes.replaceChildren(...listChanges(this.question.arguments, JSON.parse(this.editor.value)));
      this.problem.hidden = true;
    } catch (error) {
      this.fail(`The arguments are not JSON: ${error.message}`);
    }
  }

  approve() {
    const body = {};
    try {
      const edited = JSON.parse(this.editor.value);
      if (listChanges(this.question.arguments, edited).length) body.arguments = edited;
    } catch (error) {
      return this.fail(`The arguments are not JSON: ${error.message}`);
    }
    if (this.isGrant.checked) Object.assign(body, { seconds: Number(this.seconds.value), scope: this.scope.value });
    return this.send("approve", body);
  }

  async send(action, body) {
    try {
      await act(this.question.run_id, action, { question: this.question.id, ...body });
      say(`${action}: sent`);
      this.isSent = true;
      this.dialog.close();
      this.next(this.question);
    } catch (error) {
      this.fail(error.message);
    }
  }

  fail(text) {
    this.problem.hidden = false;
    this.problem.textContent = text;
  }

  check(questions) {
    const isOpen = questions.some((one) => one.run_id === this.question.run_id && one.id === this.question.id);
    if (isOpen || this.isSent) return;
    this.fail("This question was decided or has changed meanwhile. Close it and look again.");
    for (const button of this.dialog.querySelectorAll("#approve, #deny, .buttons .primary")) button.disabled = true;
  }

  tick() {
    const { expires } = this.question;
    if (!expires) return;
    const left = expires - Date.now() / 1000;
    this.left.textContent = left > 0 ? `Can be answered for ${formatAge(left)} more` : this.question.about === "question" ? "The time for an answer is over: the run continues without" : "The time for an answer is over: the run takes that as a denial";
  }

  end() {
    clearInterval(this.timer);
    document.removeEventListener("questions", this.watch);
    this.dialog.remove();
    open = null;
    this.before?.focus();
  }

  show() {
    this.before = document.activeElement;
    document.body.append(this.dialog);
    this.dialog.showModal();
    this.dialog.querySelector("h2").focus();
  }
}

export async function openApproval(questions, chosen) {
  if (open) return;
  const listed = questions.length ? questions : (await get("questions")).questions;
  const question = chosen || listed[0];
  if (!question) {
    say("Nothing waits for you.");
    return;
  }
  open = new Decision(question, listed.length, (done) => {
    const rest = listed.filter((one) => one.run_id !== done.run_id || one.id !== done.id);
    if (rest.length) setTimeout(() => openApproval(rest, null));
  });
  open.show();
}
