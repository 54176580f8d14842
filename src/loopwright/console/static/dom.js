// Elements of the page. Texts become text nodes, always: nothing here parses markup.

const SVG = "http://www.w3.org/2000/svg";

function build(element, properties, children) {
  for (const [name, value] of Object.entries(properties || {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "value") element.value = value;
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.flat(Infinity).filter((one) => one !== null && one !== undefined && one !== false));
  return element;
}

export const h = (tag, properties, ...children) => build(document.createElement(tag), properties, children);
export const svg = (tag, properties, ...children) => build(document.createElementNS(SVG, tag), properties, children);

const SHOWN = 8000;
let hiding = 0;

// Say something at the foot of the page, where a screen reader hears it, for a few seconds.
export function say(text) {
  const status = document.getElementById("status");
  status.textContent = text;
  clearTimeout(hiding);
  hiding = setTimeout(() => { status.textContent = ""; }, SHOWN);
}

export function formatTime(seconds) {
  return new Date(seconds * 1000).toLocaleString(undefined, { dateStyle: "short", timeStyle: "medium" });
}

export function formatAge(seconds) {
  const units = [["d", 86400], ["h", 3600], ["min", 60]];
  for (const [unit, size] of units) if (seconds >= size) return `${Math.floor(seconds / size)} ${unit}`;
  return `${Math.max(0, Math.floor(seconds))} s`;
}

export function formatCost(cost) {
  return cost === null || cost === undefined ? "–" : cost.toPrecision(3);
}

export function formatNumber(number) {
  return (number || 0).toLocaleString();
}

export function badge(status) {
  return h("span", { class: `badge s-${/^[a-z]+$/.test(status) ? status : "other"}` }, status);
}

// Do the work soon after the first of many calls, one at a time, and again for calls that came meanwhile: news may never
// pause, and an answer that was asked for earlier must not take the place of a later one.
export function throttle(work, milliseconds) {
  let isPlanned = false;
  let isAtWork = false;
  let isDue = false;
  const call = () => {
    isDue = true;
    if (isPlanned || isAtWork) return;
    isPlanned = true;
    setTimeout(async () => {
      isPlanned = false;
      isDue = false;
      isAtWork = true;
      try {
        await work();
      } finally {
        isAtWork = false;
        if (isDue) call();
      }
    }, milliseconds);
  };
  return call;
}

export function debounce(work, milliseconds) {
  let timer = 0;
  return (...given) => {
    clearTimeout(timer);
    timer = setTimeout(() => work(...given), milliseconds);
  };
}
