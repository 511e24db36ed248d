// Publishes orders and bills them, with Node.js and no package: node shop.mjs http://127.0.0.1:8380
const [gateway, token = process.env.TOKEN] = process.argv.slice(2);
const topic = `${gateway}/v1/topics/node-orders`;

async function ask(method, url, body = {}) {
  const headers = { "content-type": "application/json" };
  if (token) headers.authorization = `Bearer ${token}`;
  const reply = await fetch(url, { method, headers, body: JSON.stringify(body) });
  const found = await reply.json();
  // A problem says in `detail` what is wrong, and in `type` which one it is.
  if (!reply.ok) throw new Error(`${found.type}: ${found.detail}`);
  return found;
}

await ask("PUT", topic, { kind: "ordered", slots: 4 });
await ask("PUT", `${topic}/groups/billing`);

const customers = ["ann", "ben", "cem"];
const messages = Array.from({ length: 30 }, (_, number) => ({
  key: customers[number % 3],
  id: `order-${number}`,
  body: { number },
}));
const { results } = await ask("POST", `${topic}/messages`, { messages });
console.log(`published: ${results.filter((one) => one.outcome === "stored").length}`);

const billed = new Map(customers.map((name) => [name, []]));
let failed = false;
for (let count = 0; count < messages.length; ) {
  const { deliveries } = await ask("POST", `${topic}/groups/billing/pull`, {
    max: 10,
    wait: "20s",
    lease: "30s",
  });
  const settle = { ack: [], retry: [] };
  for (const { receipt, key, body } of deliveries) {
    if (body.number === 4 && !failed) {
      failed = true; // once: its key waits until it comes again, and all others go on
      settle.retry.push({ receipt, delay: "100ms", error: "the bank sleeps" });
    } else {
      billed.get(key).push(body.number);
      settle.ack.push(receipt);
    }
  }
  if (!deliveries.length) continue;
  const outcomes = await ask("POST", `${topic}/groups/billing/settle`, settle);
  count += outcomes.results.filter((one) => settle.ack.includes(one.receipt)).length;
}

const inOrder = [...billed.values()].every((numbers) =>
  numbers.every((number, place) => place === 0 || numbers[place - 1] < number),
);
console.log(`each customer in order: ${inOrder ? "yes" : "no"}`);
