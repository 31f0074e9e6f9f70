// `kafkalog test-broker`: it ends with this process, however that ends.
const { spawn } = require("node:child_process");
const readline = require("node:readline");

class Broker {
  // KAFKALOG names the command, if it is not in PATH.
  static async start(...args) {
    const [command, ...words] = (process.env.KAFKALOG || "kafkalog").split(" ");
    const child = spawn(command, [...words, "test-broker", ...args], {
      stdio: ["pipe", "pipe", "inherit"],
    });
    const broker = new Broker();
    broker.child = child;
    broker.lines = readline.createInterface({ input: child.stdout })[Symbol.asyncIterator]();
    broker.address = await broker.line();
    return broker;
  }

  // Gives a command, such as "fail Produce NOT_LEADER_OR_FOLLOWER 2".
  async say(command) {
    this.child.stdin.write(`${command}\n`);
    const answer = await this.line();
    if (answer !== "ok") throw new Error(`${command}: ${answer}`);
  }

  async line() {
    const { value, done } = await this.lines.next();
    if (done) throw new Error("the broker ended");
    return value;
  }

  end() {
    const ended = new Promise((resolve) => this.child.once("exit", resolve));
    this.child.stdin.end();
    return ended;
  }
}

module.exports = { Broker };
