// The frame of the page: which view the address names, what waits for a person, and the way to the others.

import { follow, get, onTokenNeeded, takeToken } from "./api.js";
import { openApproval } from "./approvals.js";
import { showStart } from "./chat.js";
import { showCompare } from "./compare.js";
import { showCosts } from "./costs.js";
import { h, throttle } from "./dom.js";
import { showRun } from "./run.js";
import { showRuns } from "./runs.js";
import { showSchedules } from "./schedules.js";
import { showSettings } from "./settings.js";
import { showThread, showThreads } from "./threads.js";

const main = document.getElementById("main");
const waiting = h("button", { type: "button", class: "waiting", onclick: () => openApproval(waitingQuestions, null) }, "Nothing waits");
const link = h("span", { class: "link", title: "The connection to the server" }, "connecting");
let waitingQuestions = [];
let close = () => {};
let session = null;

const VIEWS = [
  [/^#\/run\/([^/]+)$/, (id) => showRun(main, decodeURIComponent(id), session)],
  [/^#\/run\/([^/]+)\/(\d+)$/, (id, seq) => showRun(main, decodeURIComponent(id), session, Number(seq))],
  [/^#\/threads$/, () => showThreads(main)],
  [/^#\/thread\/([^/]+)$/, (name) => showThread(main, decodeURIComponent(name), session)],
  [/^#\/start$/, () => showStart(main, session)],
  [/^#\/costs$/, () => showCosts(main)],
  [/^#\/settings$/, () => showSettings(main, session)],
  [/^#\/schedules$/, () => showSchedules(main, session)],
  [/^#\/compare\/([^/]+)\/([^/]+)$/, (a, b) => showCompare(main, decodeURIComponent(a), decodeURIComponent(b))],
];

const LINKS = [["#/", "Runs"], ["#/start", "Start"], ["#/threads", "Threads"], ["#/schedules", "Schedules"], ["#/costs", "Costs"], ["#/settings", "Settings"]];

function route() {
  close();
  document.title = "Loopwright console";
  for (const [pattern, show] of VIEWS) {
    const found = pattern.exec(location.hash);
    if (found) {
      close = show(...found.slice(1));
      return mark();
    }
  }
  close = showRuns(main);
  mark();
}

function mark() {
  for (const one of document.querySelectorAll("#top nav a")) {
    const isHere = (location.hash || "#/") === one.getAttribute("href");
    if (isHere) one.setAttribute("aria-current", "page");
    else one.removeAttribute("aria-current");
  }
}

function buildFrame() {
  document.getElementById("top").replaceChildren(
    h("a", { class: "brand", href: "#/" }, h("img", { src: "static/icon.svg", alt: "" }), "Loopwright"),
    h("nav", { "aria-label": "Views" },
      ...LINKS.map(([href, text]) => h("a", { href }, text))),
    waiting, link,
    h("span", { class: "user", title: `${session.tenant ? `Tenant ${session.tenant}. ` : ""}May ${session.rights.join(", ")}. Journal ${session.journal}` }, session.user));
}

const readWaiting = throttle(async () => {
  try {
    waitingQuestions = (await get("questions")).questions;
  } catch {
    setTimeout(readWaiting, 2000);
    return;
  }
  const count = waitingQuestions.length;
  waiting.textContent = count ? `${count} waiting for you` : "Nothing waits";
  waiting.classList.toggle("has", count > 0);
  document.dispatchEvent(new CustomEvent("questions", { detail: waitingQuestions }));
}, 150);

function ask(reason) {
  return new Promise((resolve) => {
    const field = h("input", { id: "token", autocomplete: "off", required: true });
    const dialog = h("dialog", { "aria-labelledby": "token-title" },
      h("form", { method: "dialog", onsubmit: () => {
        const given = field.value.trim();
        resolve(given.includes("token=") ? given.split("token=")[1] : given);
        setTimeout(() => dialog.remove());
      } },
      h("h2", { id: "token-title" }, "Token"),
      h("p", {}, reason),
      h("p", {}, "The command that serves this page printed an address with a token. Open that address, or paste it here."),
      h("label", { for: "token" }, "Address or token"), field,
      h("div", { class: "buttons" }, h("button", { class: "primary" }, "Continue"))));
    dialog.addEventListener("cancel", (event) => event.preventDefault());
    document.body.append(dialog);
    dialog.showModal();
  });
}

let asking = null;
onTokenNeeded((reason) => {
  asking = asking || ask(reason).finally(() => { asking = null; });
  return asking;
});

async function start() {
  takeToken();
  try {
    session = await get("session");
  } catch (error) {
    main.replaceChildren(h("div", { class: "problem", role: "alert" }, h("h1", {}, "The console cannot be shown"), h("p", {}, error.message)));
    return;
  }
  buildFrame();
  follow("news", {}, (event) => {
    readWaiting();
    document.dispatchEvent(new CustomEvent("news", { detail: event.value }));
  }, (isConnected) => {
    link.textContent = isConnected ? "live" : "reconnecting";
    link.classList.toggle("off", !isConnected);
  });
  readWaiting();
  addEventListener("hashchange", () => {
    takeToken();
    route();
  });
  route();
}

start();
