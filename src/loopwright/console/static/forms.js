// Buttons that say why they cannot act, dialogs with a form, and fields made from a JSON schema.

import { h, say } from "./dom.js";

// A button that is greyed out where there is a reason, and says it when it is pressed.
export function buildButton(title, reason, press, properties) {
  const tell = () => say(`${title}: ${reason}`);
  return h("button", { type: "button", title: reason || null, "aria-disabled": reason ? "true" : null, onclick: reason ? tell : press, ...properties }, title);
}

// Ask in a dialog; `send` may throw an error, whose text is shown while the dialog stays open.
export function openForm({ title, text, fields, submit, danger, others = [], check, send }) {
  const before = document.activeElement;
  const problem = h("p", { class: "problem", role: "alert", hidden: true });
  const tell = (words) => {
    problem.hidden = !words;
    problem.textContent = words;
  };
  const attempt = async (work) => {
    try {
      await work(form);
      dialog.close();
    } catch (error) {
      tell(error.message);
    }
  };
  const form = h("form", {},
    h("h2", { id: "form-title" }, title), text && h("p", { class: "sub" }, text), ...fields, problem,
    h("div", { class: "buttons" },
      ...others.map(([name, work]) => h("button", { type: "button", class: "quiet", onclick: () => attempt(work) }, name)),
      h("span", { class: "space-between" }),
      h("button", { type: "button", onclick: () => dialog.close() }, "Cancel"),
      h("button", { class: danger ? "danger solid" : "primary" }, submit || title)));
  const dialog = h("dialog", { "aria-labelledby": "form-title" }, form);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    attempt(send);
  });
  if (check) form.addEventListener("input", () => check(form).then(() => tell(""), (error) => tell(error.message)));
  dialog.addEventListener("close", () => { dialog.remove(); before?.focus(); });
  document.body.append(dialog);
  dialog.showModal();
  return { form, dialog };
}

export function buildField(label, element, hint) {
  return h("div", { class: "field" }, h("label", { for: element.id }, label), element, hint && h("p", { class: "sub" }, hint));
}

export function buildSelect(id, label, names, chosen, hint) {
  const options = names.map((one) => (Array.isArray(one) ? one : [one, one]));
  return buildField(label, h("select", { id, name: id }, ...options.map(([value, title]) => h("option", { value, selected: value === chosen }, title))), hint);
}

// Fields for the arguments of a tool: one for each property, by its type. `read` returns the arguments.
export class SchemaFields {
  constructor(schema) {
    this.required = new Set(schema.required || []);
    this.parts = Object.entries(schema.properties || {}).map(([name, one]) => this.buildPart(name, this.resolve(schema, one)));
    this.element = h("div", { class: "fields" }, this.parts.length ? this.parts.map((one) => one.element) : h("p", { class: "empty" }, "It takes no arguments."));
  }

  // A reference to a definition of the same schema, and a value that may be null, stand for what they name.
  resolve(schema, one) {
    const name = /^#\/(?:\$defs|definitions)\/(.+)$/.exec(one.$ref || "")?.[1];
    const found = name ? { ...(schema.$defs || schema.definitions || {})[name], ...one } : one;
    const choices = (found.anyOf || []).filter((part) => part.type !== "null");
    return choices.length === 1 ? { ...this.resolve(schema, choices[0]), ...found, type: choices[0].type } : found;
  }

  buildPart(name, schema) {
    const id = `argument-${name}`;
    const isRequired = this.required.has(name);
    const label = `${name}${isRequired ? "" : " (optional)"}`;
    const kind = schema.enum ? "enum" : schema.type;
    const control = this.buildControl(id, kind, schema, isRequired);
    if (schema.default !== undefined && kind !== "boolean") control.value = kind === "string" || kind === "enum" ? schema.default : JSON.stringify(schema.default);
    if (kind === "boolean") control.checked = schema.default === true;
    const element = kind === "boolean"
      ? h("div", { class: "field" }, h("label", { class: "check", for: id }, control, label), schema.description && h("p", { class: "sub" }, schema.description))
      : buildField(label, control, schema.description || (["string", "enum", "integer", "number"].includes(kind) ? null : "As JSON"));
    return { name, kind, control, isRequired, element };
  }

  buildControl(id, kind, schema, required) {
    if (kind === "enum") return h("select", { id, required }, ...(required ? [] : [""]).concat(schema.enum).map((one) => h("option", { value: String(one) }, String(one))));
    if (kind === "boolean") return h("input", { id, type: "checkbox" });
    if (kind === "integer" || kind === "number") return h("input", { id, type: "number", step: kind === "integer" ? 1 : "any", min: schema.minimum, max: schema.maximum, required });
    if (kind === "string") return h("textarea", { id, rows: 2, required: required && schema.minLength > 0 });
    return h("textarea", { id, rows: 3, class: "code", required, spellcheck: "false" });
  }

  read() {
    const found = {};
    for (const part of this.parts) {
      const value = part.kind === "boolean" ? part.control.checked : part.control.value;
      const isLeftOut = value === "" && !part.isRequired;
      if (!isLeftOut) found[part.name] = this.parse(part, value);
    }
    return found;
  }

  parse({ name, kind }, value) {
    if (kind === "string" || kind === "boolean" || kind === "enum") return value;
    if (kind === "integer" || kind === "number") return Number(value);
    try {
      return JSON.parse(value);
    } catch (error) {
      throw new Error(`${name}: is not JSON: ${error.message}`);
    }
  }
}
