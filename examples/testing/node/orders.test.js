// What a suite in JavaScript looks like: npm test.
const assert = require("node:assert");
const test = require("node:test");
const { Kafka, logLevel } = require("kafkajs");
const { Broker } = require("./broker");

function kafka(broker) {
  const retry = { initialRetryTime: 20 };
  return new Kafka({ brokers: [broker.address], logLevel: logLevel.NOTHING, retry });
}

async function send(broker, value, acks = -1) {
  const producer = kafka(broker).producer();
  await producer.connect();
  await producer.send({ topic: "orders", acks, messages: [{ value }] });
  await producer.disconnect();
}

async function read(broker, count) {
  const consumer = kafka(broker).consumer({ groupId: "readers" });
  await consumer.connect();
  await consumer.subscribe({ topic: "orders", fromBeginning: true });
  const values = [];
  await new Promise((resolve) =>
    consumer.run({
      eachMessage: async ({ message }) => {
        values.push(message.value.toString());
        if (values.length === count) resolve();
      },
    }),
  );
  await consumer.disconnect();
  return values;
}

test("a producer survives a move", async () => {
  const broker = await Broker.start("--topic", "orders");
  await broker.say("fail Produce NOT_LEADER_OR_FOLLOWER 2");
  await send(broker, "one");
  assert.deepStrictEqual(await read(broker, 1), ["one"]);
  await broker.end();
});

test("a power cut loses what nobody waited for", async () => {
  const broker = await Broker.start("--topic", "orders");
  await send(broker, "kept");
  await send(broker, "lost", 1);
  await broker.say("kill");
  await broker.say("start");
  await send(broker, "next");
  assert.deepStrictEqual(await read(broker, 2), ["kept", "next"]);
  await broker.end();
});
