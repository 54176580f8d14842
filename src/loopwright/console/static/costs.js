// What the newest runs cost, by agent, model or day.

import { get } from "./api.js";
import { formatCost, formatNumber, h } from "./dom.js";

export function showCosts(main) {
  const table = h("tbody");
  const note = h("p", { class: "sub" });
  const by = h("select", { "aria-label": "By" }, ...["agent", "model", "day"].map((one) => h("option", { value: one }, one)));
  let rows = [];
  const draw = () => {
    const sums = new Map();
    for (const row of rows) {
      const known = sums.get(row[by.value]) || { calls: 0, tokens: 0, cost: 0 };
      sums.set(row[by.value], { calls: known.calls + row.calls, tokens: known.tokens + row.tokens, cost: known.cost + row.cost });
    }
    const sorted = [...sums].sort((a, b) => b[1].cost - a[1].cost || b[1].tokens - a[1].tokens);
    table.replaceChildren(...sorted.map(([name, sum]) => h("tr", {}, h("td", {}, name), h("td", { class: "number" }, formatNumber(sum.calls)), h("td", { class: "number" }, formatNumber(sum.tokens)), h("td", { class: "number" }, sum.cost ? formatCost(sum.cost) : "–"))));
  };
  by.addEventListener("change", draw);
  main.replaceChildren(h("h1", {}, "Costs"), h("div", { class: "filters" }, h("label", { class: "check" }, "By ", by), note),
    h("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": "Costs" }, h("table", {}, h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "Name"), ...["Model calls", "Tokens", "Cost"].map((one) => h("th", { scope: "col", class: "number" }, one)))), table)));
  get("costs").then((answer) => {
    rows = answer.rows;
    note.textContent = answer.more ? `of the newest ${answer.runs} runs` : `of all ${answer.runs} runs`;
    draw();
  }, (error) => { note.textContent = error.message; });
  return () => {};
}
