// The agent of kafkajs: only gzip and no compression are built in.
"use strict";
const readline = require("readline");
const { Kafka, CompressionTypes, ConfigResourceTypes, logLevel } = require("kafkajs");

const kafka = new Kafka({
  clientId: "kafkajs",
  brokers: [process.argv[2]],
  logLevel: logLevel.NOTHING,
  retry: { initialRetryTime: 100, maxRetryTime: 500, retries: 60 },
  ...JSON.parse(process.env.KAFKAJS_SECURITY || "{}"),
});
const ANSWER_MS = 20000;
const COALESCE = 50;
const PAUSE_MS = 10; // some thousands a second are load, and can all be checked
const STEP = 10; // records of a transaction
const ABORT = 3; // each third one is aborted
const members = new Map();
let stream = null;

const bytesIn = (text) => (text === null ? null : Buffer.from(text, "base64"));
const bytesOut = (data) => (data === null || data === undefined ? null : data.toString("base64"));

// kafkajs has an object of headers: a repeated name has an array.
function headersIn(pairs) {
  const made = {};
  for (const [name, value] of pairs) {
    const data = bytesIn(value);
    if (name in made) made[name] = [].concat(made[name], [data]);
    else made[name] = data;
  }
  return made;
}

function headersOut(headers) {
  const pairs = [];
  for (const [name, value] of Object.entries(headers || {})) {
    for (const one of Array.isArray(value) ? value : [value]) pairs.push([name, bytesOut(one)]);
  }
  return pairs;
}

function producerOf(request) {
  return kafka.producer({
    idempotent: request.idempotent,
    maxInFlightRequests: request.idempotent ? 1 : 5,
    allowAutoTopicCreation: false,
  });
}

const acksOf = (request) => (request.acks === "all" ? -1 : Number(request.acks));
const codecOf = (request) =>
  request.codec === "gzip" ? CompressionTypes.GZIP : CompressionTypes.None;

async function produce(request) {
  const producer = producerOf(request);
  await producer.connect();
  const messages = request.records.map((fields) => ({
    key: bytesIn(fields.key),
    value: bytesIn(fields.value),
    headers: headersIn(fields.headers),
    partition: request.partition,
    timestamp: fields.timestamp_ms === null ? undefined : String(fields.timestamp_ms),
  }));
  const done = await producer.send({
    topic: request.topic,
    acks: acksOf(request),
    compression: codecOf(request),
    messages,
  });
  await producer.disconnect();
  const base = done.length && done[0].baseOffset !== undefined ? Number(done[0].baseOffset) : -1;
  return { offsets: messages.map((_, i) => (base < 0 ? -1 : base + i)) };
}

async function consume(request) {
  const consumer = kafka.consumer({ groupId: "kafkajs-reader-" + process.hrtime.bigint() });
  await consumer.connect();
  await consumer.subscribe({ topic: request.topic, fromBeginning: true });
  const found = [];
  await new Promise((resolve, reject) => {
    setTimeout(() => reject(new Error("consume: not in time")), ANSWER_MS).unref();
    consumer
      .run({
        autoCommit: false,
        eachMessage: async ({ partition, message }) => {
          const offset = Number(message.offset);
          if (partition !== request.partition || offset < request.offset) return;
          found.push({
            offset,
            timestamp_ms: Number(message.timestamp),
            key: bytesOut(message.key),
            value: bytesOut(message.value),
            headers: headersOut(message.headers),
          });
          if (found.length === request.count) resolve();
        },
      })
      .catch(reject);
  });
  await consumer.disconnect();
  return { records: found.slice(0, request.count) };
}

async function withAdmin(work) {
  const admin = kafka.admin();
  await admin.connect();
  try {
    return await work(admin);
  } finally {
    await admin.disconnect();
  }
}

async function time(request) {
  const found = await withAdmin((admin) =>
    admin.fetchTopicOffsetsByTimestamp(request.topic, request.timestamp_ms)
  );
  return { offset: Number(found.find((one) => one.partition === request.partition).offset) };
}

async function committed(request) {
  const [found] = await withAdmin((admin) =>
    admin.fetchOffsets({ groupId: request.group, topics: [request.topic] })
  );
  const by = new Map(found.partitions.map((one) => [one.partition, Number(one.offset)]));
  return { offsets: request.partitions.map((number) => by.get(number) ?? -1) };
}

async function join(request) {
  const consumer = kafka.consumer({
    groupId: request.group,
    sessionTimeout: request.session_ms,
    heartbeatInterval: 300,
    rebalanceTimeout: 20000,
    metadataMaxAge: 1000,
    maxWaitTimeInMs: 200,
  });
  const member = { consumer, assigned: [], joins: 0, seen: [], failed: "", positions: new Map() };
  members.set(request.member, member);
  consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => {
    member.assigned = Object.entries(payload.memberAssignment).flatMap(([topic, numbers]) =>
      numbers.map((number) => [topic, number])
    );
    member.joins += 1;
  });
  consumer.on(consumer.events.REBALANCING, () => (member.assigned = []));
  const start = async () => {
    await consumer.connect();
    for (const topic of request.topics) await consumer.subscribe({ topic, fromBeginning: true });
    await consumer.run({
      autoCommit: false,
      eachMessage: async ({ topic, partition, message }) => {
        member.seen.push([topic, partition, Number(message.offset)]);
        member.positions.set(`${topic} ${partition}`, String(Number(message.offset) + 1));
      },
    });
  };
  start().catch((error) => (member.failed = String(error)));
  return {};
}

async function commit(request) {
  const { consumer, positions } = members.get(request.member);
  const offsets = [...positions].map(([where, offset]) => {
    const [topic, partition] = where.split(" ");
    return { topic, partition: Number(partition), offset };
  });
  await consumer.commitOffsets(offsets);
  return {};
}

async function leave(request) {
  const member = members.get(request.member);
  await member.consumer.disconnect();
  member.assigned = [];
  return {};
}

async function state(request) {
  const { assigned, joins, seen, failed } = members.get(request.member);
  return { assigned, joins, seen, failed };
}

async function tour({ topic }) {
  return withAdmin(async (admin) => {
    const setting = async () => {
      const { resources } = await admin.describeConfigs({
        includeSynonyms: false,
        resources: [
          { type: ConfigResourceTypes.TOPIC, name: topic, configNames: ["retention.ms"] },
        ],
      });
      return resources[0].configEntries[0].configValue;
    };
    const partitions = async () =>
      (await admin.fetchTopicMetadata({ topics: [topic] })).topics[0].partitions.length;
    const fresh = {
      topic,
      numPartitions: 3,
      replicationFactor: 1,
      configEntries: [{ name: "retention.ms", value: "3600000" }],
    };
    const said = {};
    await admin.createTopics({ topics: [fresh], waitForLeaders: true });
    said.partitions = await partitions();
    said.retention = await setting();
    // It does not treat an existing topic as an error, and returns false.
    said.again = (await admin.createTopics({ topics: [fresh] })) ? 0 : 36;
    await admin.createPartitions({ topicPartitions: [{ topic, count: 5 }] });
    said.grown = await partitions();
    await admin.alterConfigs({
      validateOnly: false,
      resources: [
        {
          type: ConfigResourceTypes.TOPIC,
          name: topic,
          configEntries: [{ name: "retention.ms", value: "7200000" }],
        },
      ],
    });
    said.altered = await setting();
    await admin.deleteTopics({ topics: [topic] });
    return said;
  });
}

// A call sends nothing more until all its records are acknowledged: so calls are small.
async function startStream(request) {
  const producer = producerOf(request);
  await producer.connect();
  stream = { acked: [], failed: [], stopped: false, ended: null };
  const mine = stream;
  const run = async () => {
    for (let next = request.start; !mine.stopped; next += COALESCE) {
      const numbers = Array.from({ length: COALESCE }, (_, i) => next + i);
      const messages = numbers.map((number) => ({
        key: "k",
        value: `${number}:` + "v".repeat((number * 7) % 300),
        partition: number % request.partitions,
      }));
      try {
        await new Promise((resolve) => setTimeout(resolve, PAUSE_MS));
        const done = await producer.send({
          topic: request.topic,
          acks: acksOf(request),
          compression: codecOf(request),
          messages,
        });
        const ends = new Map(done.map((one) => [one.partition, Number(one.baseOffset)]));
        for (const number of numbers) {
          const partition = number % request.partitions;
          mine.acked.push([number, partition, ends.get(partition)]);
          ends.set(partition, ends.get(partition) + 1);
        }
      } catch (error) {
        numbers.forEach((number) => mine.failed.push([number, String(error)]));
      }
    }
    await producer.disconnect();
  };
  mine.ended = run();
  return {};
}

const acked = async () => ({ acked: stream.acked, failed: stream.failed });

async function stop() {
  stream.stopped = true;
  await stream.ended;
  return acked();
}

async function transform({ source, target, group, count }) {
  const producer = kafka.producer({
    idempotent: true,
    maxInFlightRequests: 1,
    transactionalId: group,
  });
  const consumer = kafka.consumer({ groupId: group, maxWaitTimeInMs: 200 });
  await producer.connect();
  await consumer.connect();
  await consumer.subscribe({ topic: source, fromBeginning: true });
  let batch = [];
  let done = 0;
  let tries = 0;
  const transfer = async (next) => {
    const transaction = await producer.transaction();
    await transaction.send({ topic: target, messages: batch });
    await transaction.sendOffsets({
      consumerGroupId: group,
      topics: [{ topic: source, partitions: [{ partition: 0, offset: String(next) }] }],
    });
    tries += 1;
    if (tries % ABORT) await transaction.commit();
    else await transaction.abort();
    return tries % ABORT;
  };
  await new Promise((resolve, reject) => {
    setTimeout(() => reject(new Error("transform: not in time")), ANSWER_MS).unref();
    const eachMessage = async ({ message }) => {
      batch.push({ value: message.value, partition: 0 });
      if (batch.length < STEP) return;
      try {
        while (!(await transfer(Number(message.offset) + 1)));
      } catch (error) {
        reject(error);
        throw error;
      }
      done += batch.length;
      batch = [];
      if (done >= count) resolve();
    };
    consumer.run({ autoCommit: false, eachMessage }).catch(reject);
  });
  await consumer.disconnect();
  await producer.disconnect();
  return { tries };
}

const handlers = {
  produce, consume, time, committed, join, commit, leave, state, tour,
  stream: startStream, acked, stop, transform,
};

readline.createInterface({ input: process.stdin }).on("line", async (line) => {
  const request = JSON.parse(line);
  let answer;
  try {
    answer = await handlers[request.do](request);
  } catch (error) {
    answer = { error: String(error) };
  }
  process.stdout.write(JSON.stringify(answer) + "\n");
}).on("close", () => process.exit(0));
