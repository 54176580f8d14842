// Conversations: a thread's runs as turns.

import { get } from "./api.js";
import { openApprovals } from "./approvals.js";
import { buildChat } from "./chat.js";
import { badge, formatTime, h, throttle } from "./dom.js";

function watch(load) {
  const refresh = throttle(load, 300);
  document.addEventListener("news", refresh);
  load();
  return () => document.removeEventListener("news", refresh);
}

export function showThreads(main) {
  const list = h("ul", { class: "runs" });
  main.replaceChildren(h("h1", {}, "Threads"), list);
  return watch(async () => {
    const { threads } = await get("threads");
    list.replaceChildren(...(threads.length ? threads.map((one) => h("li", { class: "run" }, h("a", { href: `#/thread/${encodeURIComponent(one.thread)}` },
      h("span", { class: "run-state" }, badge(one.status)), h("span", { class: "run-text" }, h("span", { class: "task" }, one.thread), h("span", { class: "sub" }, `${one.agent || "no agent"} · ${one.turns} turns · ${formatTime(one.last)}`)))))
      : [h("li", { class: "empty" }, "No conversations yet. ", h("a", { href: "#/start" }, "Begin one"), ", or call agent.thread(\"name\") in your code.")]));
  });
}

function buildTurn(turn) {
  const isPlain = turn.status === "completed";
  const meta = h("div", { class: "meta" }, !isPlain && badge(turn.status), h("a", { href: `#/run/${encodeURIComponent(turn.run_id)}`, title: "How this answer came about" }, formatTime(turn.at)));
  if (turn.hidden) return [h("li", { class: "said" }, h("p", {}, "Hidden: it may hold something secret."), meta)];
  const said = turn.answer || (turn.reason ? `No answer: ${turn.reason.replaceAll("_", " ")}` : turn.status === "running" ? "At work …" : `No answer yet: ${turn.status}`);
  return [
    ...turn.asked.map((text) => h("li", { class: "said user" }, h("b", {}, "user"), h("pre", {}, text))),
    h("li", { class: "said assistant" }, h("b", {}, turn.agent || "assistant"), h("pre", {}, said), meta),
  ];
}

export function showThread(main, name, session) {
  const list = h("ol", { class: "talk" });
  const load = async () => {
    const { turns } = await get("thread", { thread: name });
    list.replaceChildren(...(turns.length ? turns.flatMap(buildTurn) : [h("li", { class: "empty" }, "Nothing was said yet.")]));
    chat.show(turns);
  };
  main.replaceChildren(h("h1", {}, name), h("p", { class: "sub" }, h("a", { href: "#/threads" }, "All threads")),
    h("div", { class: "buttons" }, h("button", { type: "button", id: "held", onclick: () => openApprovals(name) }, "What is approved")), list);
  const chat = buildChat(list, name, session, throttle(load, 50));
  main.append(chat.form);
  const close = watch(load);
  return () => {
    close();
    chat.close();
  };
}
