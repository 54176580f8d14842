// Drives a console by the real client of AG-UI: start, stream, tools, state, interrupt, resume, client tool, reconnect.
// node ag_ui_client.mjs FOLDER ADDRESS TOKEN, where FOLDER has node_modules; prints one line of JSON.
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const [folder, address, token] = process.argv.slice(2);
const find = createRequire(`${folder}/package.json`).resolve;
const { HttpAgent, runHttpRequest, transformHttpEventStream } = await import(pathToFileURL(find("@ag-ui/client")));
const headers = { Authorization: `Bearer ${token}` };

class Console extends HttpAgent {
  after = 0;
  // A front end that comes back: the events of the run that follow the last entry that it has seen.
  connect() {
    const url = `${address}/ag-ui/${this.state.run}/events?after=${this.after}`;
    return transformHttpEventStream(runHttpRequest(() => fetch(url, { headers })));
  }
}

const agent = new Console({ url: `${address}/ag-ui`, headers, threadId: "from-node" });
const seen = {};

async function run(name, parameters, method = "runAgent") {
  const types = [];
  const result = await agent[method](parameters, { onEvent: ({ event }) => void types.push(event.type) });
  seen[name] = {
    types,
    status: agent.state.status,
    interrupts: agent.pendingInterrupts.map((one) => one.reason),
    last: agent.messages.at(-1),
    result: result.result,
  };
}

const say = (id, content) => agent.addMessage({ id, role: "user", content });
const decide = (payload) => ({
  resume: agent.pendingInterrupts.map((one) => ({ interruptId: one.id, status: "resolved", payload })),
});

say("u1", "And in Rome?");
await run("tools");
say("u2", "Delete a.");
await run("approval");
await run("resumed", decide({ approved: true }));
say("u3", "Draw it.");
await run("chart");
const call = agent.messages.at(-1).toolCalls[0];
agent.addMessage({ id: "m1", role: "tool", toolCallId: call.id, content: "drawn" });
await run("drawn");
const list = () => agent.messages.map((one) => [one.role, one.content ?? ""]);
seen.before = list();
agent.messages = [];
await run("back", {}, "connectAgent");
seen.after = list();
console.log(JSON.stringify(seen));
