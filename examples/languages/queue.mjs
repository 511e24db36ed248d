// Sends orders to a FIFO queue and bills them, with AWS's own SDK: npm ci, then
// node queue.mjs http://127.0.0.1:8380 (a gateway that runs with --sqs)
import {
  CreateQueueCommand,
  DeleteMessageBatchCommand,
  ReceiveMessageCommand,
  SendMessageBatchCommand,
  SQSClient,
} from "@aws-sdk/client-sqs";

const [endpoint, token = process.env.TOKEN ?? "local"] = process.argv.slice(2);
const sqs = new SQSClient({
  endpoint,
  region: "us-east-1",
  credentials: { accessKeyId: token, secretAccessKey: "any" }, // the token is the access key
});

const { QueueUrl } = await sqs.send(
  new CreateQueueCommand({
    QueueName: "node-orders.fifo",
    Attributes: { FifoQueue: "true", DeduplicationScope: "messageGroup" },
  }),
);

const customers = ["ann", "ben", "cem"];
for (let start = 0; start < 30; start += 10) {
  const Entries = Array.from({ length: 10 }, (_, place) => ({
    Id: `${place}`,
    MessageBody: JSON.stringify({ number: start + place }),
    MessageGroupId: customers[(start + place) % 3],
    MessageDeduplicationId: `order-${start + place}`,
    MessageAttributes: { shop: { DataType: "String", StringValue: "node" } },
  }));
  // Sent twice: what has the same deduplication id is there once.
  for (const _ of "ab") await sqs.send(new SendMessageBatchCommand({ QueueUrl, Entries }));
}

const billed = new Map(customers.map((name) => [name, []]));
for (let count = 0; count < 30; ) {
  // The SDK itself checks the MD5 of each body.
  const { Messages = [] } = await sqs.send(
    new ReceiveMessageCommand({
      QueueUrl,
      MaxNumberOfMessages: 10,
      WaitTimeSeconds: 20,
      MessageSystemAttributeNames: ["MessageGroupId"],
      MessageAttributeNames: ["shop"],
    }),
  );
  if (!Messages.length) continue;
  for (const { Body, Attributes, MessageAttributes } of Messages) {
    if (MessageAttributes.shop.StringValue !== "node") throw new Error("its attribute is gone");
    billed.get(Attributes.MessageGroupId).push(JSON.parse(Body).number);
  }
  const Entries = Messages.map(({ ReceiptHandle }, place) => ({ Id: `${place}`, ReceiptHandle }));
  const { Successful } = await sqs.send(new DeleteMessageBatchCommand({ QueueUrl, Entries }));
  count += Successful.length;
}

const numbers = [...billed.values()].flat();
console.log(`billed: ${numbers.length}, twice: ${numbers.length - new Set(numbers).size}`);
const inOrder = [...billed.values()].every((one) =>
  one.every((number, place) => place === 0 || one[place - 1] < number),
);
console.log(`each customer in order: ${inOrder ? "yes" : "no"}`);
