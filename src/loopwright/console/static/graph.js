// Pictures of a plan and of a tree search: boxes and lines, laid out here.

import { h, svg } from "./dom.js";

const WIDTH = 190;
const HIGH = 58;
const GAP = 36;

function cut(text, length) {
  return text.length > length ? `${text.slice(0, length - 1)}…` : text;
}

function draw(boxes, lines, label) {
  const width = Math.max(...boxes.map((one) => one.x)) + WIDTH + 4;
  const height = Math.max(...boxes.map((one) => one.y)) + HIGH + 4;
  return h("div", { class: "picture", tabindex: "0", role: "group", "aria-label": label },
    svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" },
      ...lines.map(([from, to]) => svg("path", { class: "edge", d: `M${from.x + WIDTH} ${from.y + HIGH / 2} C${from.x + WIDTH + GAP / 2} ${from.y + HIGH / 2} ${to.x - GAP / 2} ${to.y + HIGH / 2} ${to.x} ${to.y + HIGH / 2}` })),
      ...boxes.map((one) => svg("g", { class: `box ${one.state}`, transform: `translate(${one.x} ${one.y})` },
        svg("title", {}, one.full), svg("rect", { width: WIDTH, height: HIGH, rx: 8 }),
        svg("text", { x: 10, y: 23 }, cut(one.text, 25)), svg("text", { x: 10, y: 43, class: "small" }, cut(one.note, 27))))),
    h("ol", { class: "visually-hidden" }, ...boxes.map((one) => h("li", {}, `${one.full}: ${one.note}`))));
}

function findStates(run, steps) {
  const isOver = Boolean(run.ending);
  const finished = run.steps || {};
  return new Map(steps.map((step) => {
    const done = finished[String(step.id)];
    if (done) return [step.id, [done.status, done.content || ""]];
    const isReady = (step.depends_on || []).every((id) => finished[String(id)]?.status === "ok");
    if (isOver) return [step.id, ["skipped", "not run"]];
    if (!isReady) return [step.id, ["pending", "waits for others"]];
    return [step.id, run.status === "waiting" ? ["waiting", "waits for a person"] : ["working", "in progress"]];
  }));
}

export function buildPlan(run) {
  const steps = (run.plans || []).flatMap((plan) => plan.value?.steps || []);
  if (!steps.length) return h("p", { class: "empty" }, "This run has no plan.");
  const states = findStates(run, steps);
  const columns = new Map();
  const place = (step) => 1 + Math.max(-1, ...(step.depends_on || []).map((id) => columns.get(id) ?? -1));
  for (const step of steps) columns.set(step.id, place(step));
  const filled = new Map();
  const boxes = steps.map((step) => {
    const column = columns.get(step.id);
    const row = filled.get(column) || 0;
    filled.set(column, row + 1);
    const [state, note] = states.get(step.id);
    const text = step.tool ? `${step.tool}(${step.arguments || ""})` : step.goal || "";
    return { id: step.id, x: 2 + column * (WIDTH + GAP), y: 2 + row * (HIGH + 14), text: `${step.id}. ${text}`, full: `Step ${step.id}: ${text}`, note: `${state}: ${note}`, state };
  });
  const byId = new Map(boxes.map((one) => [one.id, one]));
  const lines = steps.flatMap((step) => (step.depends_on || []).filter((id) => byId.has(id)).map((id) => [byId.get(id), byId.get(step.id)]));
  return draw(boxes, lines, "Plan: its steps and what each needs");
}

function collectThoughts(run) {
  const thoughts = new Map();
  const put = (thought, state) => {
    const key = JSON.stringify(thought.path);
    const known = thoughts.get(key);
    thoughts.set(key, { ...thought, state: known?.state === "selected" && state === "pruned" ? "kept" : state });
  };
  for (const level of run.levels || []) (level.value?.candidates || []).forEach((thought, index) => put(thought, (level.value.selected || []).includes(index) ? "selected" : "pruned"));
  for (const visit of run.visits || []) put(visit.value.thought, visit.value.pruned ? "pruned" : "selected");
  return [...thoughts.values()].filter((one) => one.path?.length);
}

export function buildTree(run) {
  const thoughts = collectThoughts(run);
  if (!thoughts.length) return h("p", { class: "empty" }, "This run has no tree of thoughts.");
  const byPath = new Map();
  const filled = new Map();
  for (const thought of thoughts) {
    const depth = thought.path.length - 1;
    const row = filled.get(depth) || 0;
    filled.set(depth, row + 1);
    const text = thought.path.at(-1);
    const score = thought.value === null || thought.value === undefined ? "no score" : `score ${Number(thought.value).toFixed(2)}`;
    const words = { selected: "in the beam", pruned: "pruned", kept: "was in the beam" }[thought.state];
    byPath.set(JSON.stringify(thought.path), { x: 2 + depth * (WIDTH + GAP), y: 2 + row * (HIGH + 14), text, full: text, note: `${score}, ${words}${thought.answer ? `, answers ${thought.answer}` : ""}`, state: thought.state });
  }
  const lines = thoughts.map((one) => [byPath.get(JSON.stringify(one.path.slice(0, -1))), byPath.get(JSON.stringify(one.path))]).filter(([from]) => from);
  return draw([...byPath.values()], lines, "Tree of thoughts: scores, the beam of each level, what was pruned");
}
