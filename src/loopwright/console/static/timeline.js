// A list of entries of any length: only the rows in sight are elements, and only pages in sight are fetched.

import { get } from "./api.js";
import { debounce, h } from "./dom.js";

const HEIGHT = 30;
const PAGE = 100;
const SPARE = 10;

function buildText(row) {
  if (row.hidden) return "hidden: it may hold something secret";
  return row.lines.map((line, number) => (number ? `${line.label}: ${line.text}` : line.text)).join("  ·  ");
}

export class Timeline {
  constructor(runId, choose) {
    this.runId = runId;
    this.choose = choose;
    this.rows = new Map();
    this.fetched = new Set();
    this.count = 0;
    this.started = 0;
    this.seqs = null;
    this.selected = 0;
    this.isFollowing = true;
    this.space = h("div", { class: "space", role: "list" });
    this.element = h("div", { class: "timeline", tabindex: "0", role: "group", "aria-label": "Timeline: arrow keys move, Enter opens an entry" }, this.space);
    this.draw = this.draw.bind(this);
    this.scheduled = false;
    this.element.addEventListener("scroll", () => {
      this.isFollowing = this.element.scrollTop + this.element.clientHeight >= this.element.scrollHeight - HEIGHT;
      this.schedule();
    }, { passive: true });
    this.element.addEventListener("keydown", (event) => this.move(event));
    this.fetch = debounce((first) => this.load(first), 30);
    this.observer = new ResizeObserver(() => this.schedule());
    this.observer.observe(this.element);
  }

  get length() { return this.seqs ? this.seqs.length : this.count; }

  seqAt(index) { return this.seqs ? this.seqs[index] : index + 1; }

  close() { this.observer.disconnect(); }

  add(row) {
    this.rows.set(row.seq, row);
    if (row.seq === 1) this.started = row.at;
    this.count = Math.max(this.count, row.seq);
    this.schedule();
  }

  forget() {
    this.rows.clear();
    this.fetched.clear();
    this.schedule();
  }

  filter(seqs) {
    this.seqs = seqs;
    this.isFollowing = seqs === null;
    this.schedule();
  }

  schedule() {
    if (this.scheduled) return;
    this.scheduled = true;
    requestAnimationFrame(this.draw);
  }

  draw() {
    this.scheduled = false;
    this.space.style.height = `${this.length * HEIGHT}px`;
    if (this.isFollowing) this.element.scrollTop = this.length * HEIGHT;
    const first = Math.max(0, Math.floor(this.element.scrollTop / HEIGHT) - SPARE);
    const last = Math.min(this.length, first + Math.ceil(this.element.clientHeight / HEIGHT) + 2 * SPARE);
    const shown = [];
    let missing = 0;
    for (let index = first; index < last; index += 1) {
      const seq = this.seqAt(index);
      const row = this.rows.get(seq);
      if (!row && !missing) missing = seq;
      shown.push(this.buildRow(index, seq, row));
    }
    const hadFocus = this.space.contains(document.activeElement);
    this.space.replaceChildren(...shown);
    if (hadFocus) this.element.focus({ preventScroll: true });
    if (missing) this.fetch(missing);
  }

  buildRow(index, seq, row) {
    const properties = { class: "row", role: "listitem", "data-seq": seq, "aria-setsize": this.length, "aria-posinset": index + 1 };
    const element = h("div", properties, ...(row ? this.buildCells(row) : [h("span", { class: "seq" }, String(seq))]));
    element.style.top = `${index * HEIGHT}px`;
    if (row) {
      element.classList.add(`level-${row.level}`, `depth-${Math.min(row.depth, 6)}`);
      element.addEventListener("click", () => this.select(seq));
    }
    if (seq === this.selected) element.classList.add("selected");
    return element;
  }

  buildCells(row) {
    const label = row.lines[0]?.label || row.kind.replaceAll("_", " ");
    const seconds = this.started ? row.at - this.started : 0;
    return [
      h("span", { class: "seq" }, String(row.seq)),
      h("span", { class: "lane" }, row.key),
      h("span", { class: "label" }, label),
      h("span", { class: "text" }, buildText(row)),
      h("span", { class: "at" }, `+${seconds.toFixed(seconds < 100 ? 2 : 0)} s`),
    ];
  }

  async load(seq) {
    const page = Math.floor((seq - 1) / PAGE);
    if (this.fetched.has(page)) return;
    this.fetched.add(page);
    try {
      const { rows } = await get("entries", { run: this.runId, after: page * PAGE, limit: PAGE });
      for (const row of rows) this.rows.set(row.seq, row);
      if (rows[0]?.seq === 1) this.started = rows[0].at;
      this.schedule();
    } catch {
      this.fetched.delete(page);
    }
  }

  select(seq) {
    this.selected = seq;
    this.schedule();
    this.choose(seq);
  }

  reveal(seq) {
    const index = this.seqs ? this.seqs.indexOf(seq) : seq - 1;
    this.selected = seq;
    this.isFollowing = false;
    this.element.scrollTop = Math.max(0, index * HEIGHT - this.element.clientHeight / 2);
    this.schedule();
  }

  move(event) {
    const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: 20, PageUp: -20, Home: -Infinity, End: Infinity };
    if (event.key === "Enter" && this.selected) return this.choose(this.selected);
    if (!(event.key in steps) || !this.length) return undefined;
    event.preventDefault();
    const here = this.seqs ? this.seqs.indexOf(this.selected) : this.selected - 1;
    const from = this.selected ? here : this.length;
    const index = Math.min(this.length - 1, Math.max(0, from + steps[event.key]));
    return this.reveal(this.seqAt(index));
  }
}
