// What an engine noted: memory as a difference to the note before, critiques and drift as cards, the rest as it is.

import { h } from "./dom.js";

const MAX_LINES = 400;

// The lines of two texts in order: kept, gone or new, by their longest common subsequence.
export function compareLines(before, after) {
  const [old, now] = [before, after].map((text) => (text ? text.split("\n").slice(0, MAX_LINES) : []));
  const longest = Array.from({ length: old.length + 1 }, () => new Uint16Array(now.length + 1));
  for (let i = old.length - 1; i >= 0; i -= 1) {
    for (let j = now.length - 1; j >= 0; j -= 1) longest[i][j] = old[i] === now[j] ? longest[i + 1][j + 1] + 1 : Math.max(longest[i + 1][j], longest[i][j + 1]);
  }
  const lines = [];
  let [i, j] = [0, 0];
  while (i < old.length || j < now.length) {
    if (i < old.length && j < now.length && old[i] === now[j]) lines.push(["kept", old[i], i += 1, j += 1]);
    else if (j >= now.length || (i < old.length && longest[i + 1][j] >= longest[i][j + 1])) lines.push(["gone", old[i], i += 1]);
    else lines.push(["new", now[j], j += 1]);
  }
  return lines.map(([state, text]) => [state, text]);
}

const SIGNS = { kept: " ", gone: "−", new: "+" };
const WORDS = { kept: "", gone: "gone: ", new: "new: " };

function buildDifference(before, after) {
  return h("div", { class: "difference" }, ...compareLines(before, after).map(([state, text]) => h("div", { class: `diff-${state}` },
    h("span", { "aria-hidden": "true" }, `${SIGNS[state]} `), h("span", { class: "visually-hidden" }, WORDS[state]), text)));
}

function buildPairs(pairs) {
  return h("dl", { class: "pairs" }, ...pairs.filter(([, value]) => value !== undefined && value !== null && value !== "").flatMap(([name, value]) => [h("dt", {}, name), h("dd", {}, typeof value === "string" ? value : JSON.stringify(value))]));
}

const CARDS = {
  MemorySnapshot: (value, before) => [`Working memory after iteration ${value.iterations}`, buildDifference(before?.text || "", value.text || "")],
  GoalDrifted: (value) => ["Drift: the answer left its goal", buildPairs([["score", value.score], ["keywords", (value.keywords || []).join(", ")], ["before", value.previous]])],
  DriftNoticed: (value) => [`Drift: ${value.what}`, buildPairs([["before", value.before], ["after", value.after]])],
  Critique: (value) => [`Critique of round ${value.round}: ${value.verdict}`, buildPairs([["verified", value.verified ? "by a tool" : "no: an opinion"], ["problem", value.problem]]),
    ...(value.checks || []).map((one) => buildPairs(Object.entries(one)))],
  DraftReview: (value) => [`Review of round ${value.round}: ${value.approved ? "approved" : "not approved"}`, buildPairs(Object.entries(value).filter(([name]) => !["round", "approved"].includes(name)))],
  TurnReviewed: (value) => ["Review of the turn", buildPairs(Object.entries(value))],
};

export function buildFacts(run) {
  const facts = run.facts || [];
  if (!facts.length) return h("p", { class: "empty" }, "Its engine has noted nothing.");
  const last = new Map();
  const cards = facts.map(({ name, seq, value }) => {
    const isKnown = Object.hasOwn(CARDS, name) && value && typeof value === "object";
    const [title, ...parts] = isKnown ? CARDS[name](value, last.get(name)) : [name, h("pre", {}, JSON.stringify(value, null, 2))];
    last.set(name, value);
    return h("li", { class: isKnown ? `card-${name}` : null }, h("b", {}, title), h("span", { class: "sub" }, ` entry ${seq}`), ...parts);
  });
  return h("ul", { class: "cards" }, ...cards);
}
