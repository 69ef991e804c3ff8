// A router that reads cache events as llm-d's and Dynamo's do, written from the description of their format alone: it
// knows which blocks a server says to hold, and names them by hashes of its own.

import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { createServer } from 'node:net';
import { decode } from '@msgpack/msgpack';
import { Dealer, Subscriber } from 'zeromq';

const blockSize = 16;

// The router's own name of a block: all that a request has in common with what is stored.
function nameOf(parent, tokens, { model, lora, salt }) {
  const hash = createHash('sha256').update(parent ?? JSON.stringify([model, lora ?? null, salt ?? null]));
  return hash.update(JSON.stringify(tokens)).digest('hex');
}

// A port that was free a moment ago.
export async function freeEndpoint() {
  const server = createServer();
  await new Promise((resolve) => { server.listen(0, '127.0.0.1', resolve); });
  const { port } = server.address();
  await new Promise((resolve) => { server.close(resolve); });
  return `tcp://127.0.0.1:${port}`;
}

export class Router {
  constructor(events, replay) {
    this.events = events;
    this.replay = replay;
    this.forget();
    this.whole = false;
    this.next = null; // the number that is expected
    this.forgotten = this.cleared = this.stored = this.removed = this.replayed = 0;
    this.topics = new Set();
    this.lose = () => false; // whether a message is lost on its way
    this.subscriber = new Subscriber();
    this.subscriber.connect(events);
    this.subscriber.subscribe('kv@');
    this.ended = this.read();
  }

  async close() {
    this.subscriber.close();
    await this.ended;
  }

  forget() {
    this.names = new Map(); // the server's number of a block: {name, media}
    this.blocks = new Map(); // the router's name: the server's number
  }

  async read() {
    for await (const [topic, number, payload, ...more] of this.subscriber) {
      assert.equal(more.length, 0);
      const seq = number.readBigUInt64BE();
      if (this.lose(seq)) continue;
      if (this.next !== null && seq !== this.next) await this.mend(seq);
      this.apply(topic.toString(), seq, payload);
    }
  }

  // A number that is not the next one: what is missing is asked for, if that is possible; else everything is forgotten.
  async mend(seq) {
    if (this.replay && seq > this.next && await this.askAgain(this.next, seq)) return;
    this.forgotten++;
    this.whole = false; // from now on, events may be about blocks that it has forgotten
    this.forget();
  }

  // The messages [from, to) again. False: not all of them could be had.
  async askAgain(from, to) {
    const dealer = new Dealer({ receiveTimeout: 10000 });
    dealer.connect(this.replay);
    const number = Buffer.alloc(8);
    number.writeBigUInt64BE(from);
    await dealer.send(['', number]);
    const missing = [];
    for (;;) {
      const frames = await dealer.receive();
      assert.equal(frames.length, 4);
      const [empty, topic, seq, payload] = frames;
      assert.equal(empty.length, 0);
      if (payload.length === 0) break;
      missing.push([topic.toString(), seq.readBigUInt64BE(), payload]);
    }
    dealer.close();
    if (missing.length === 0 || missing[0][1] !== from) return false;
    for (const message of missing.filter(([, seq]) => seq < to)) {
      this.apply(...message);
      this.replayed++;
    }
    return this.next === to;
  }

  apply(topic, seq, payload) {
    const [kv, address, model, ...rest] = topic.split('@');
    assert.deepEqual([kv, rest.length], ['kv', 0], topic);
    assert.match(address, /^127\.0\.0\.1:\d+$/);
    this.topics.add(topic);
    this.next = seq + 1n;
    const [time, events] = decode(payload, { useBigInt64: true });
    assert.ok(Math.abs(time - Date.now() / 1000) < 3600, `the time is ${time}`);
    for (const [kind, ...fields] of events) this[kind](model, ...fields);
  }

  AllBlocksCleared() {
    this.cleared++;
    this.whole = true;
    this.forget();
  }

  BlockStored(model, numbers, parent, tokens, size, loraId, medium, lora, extraKeys) {
    assert.equal(size, blockSize);
    assert.equal(loraId, null);
    assert.equal(tokens.length, numbers.length * blockSize);
    const known = parent === null || this.names.get(key(parent))?.media.has(medium);
    assert.ok(known || !this.whole, `block ${parent} is unknown`);
    if (!known) return;
    assert.ok(extraKeys === null || extraKeys.length === numbers.length);
    let before = parent === null ? null : this.names.get(key(parent)).name;
    for (const [i, number] of numbers.entries()) {
      const salt = parent === null && i === 0 ? extraKeys?.[0]?.[0] : undefined;
      before = nameOf(before, tokens.slice(i * blockSize, (i + 1) * blockSize).map(Number), { model, lora, salt });
      const block = this.names.get(key(number)) ?? { name: before, media: new Set() };
      assert.equal(block.name, before, 'one number is one block');
      assert.ok(!block.media.has(medium) || !this.whole, 'it was not there');
      block.media.add(medium);
      this.names.set(key(number), block);
      this.blocks.set(before, key(number));
      this.stored++;
    }
  }

  BlockRemoved(model, numbers, medium) {
    for (const number of numbers) {
      const block = this.names.get(key(number));
      const known = block?.media.delete(medium);
      assert.ok(known || !this.whole, `block ${number} was not there`);
      this.removed++;
      if (!known || block.media.size > 0) continue;
      this.names.delete(key(number));
      this.blocks.delete(block.name);
    }
  }

  // Leading tokens of a prompt that the server holds, in whole blocks; `medium`: there.
  tokens(prompt, { medium, ...request }) {
    let before = null;
    for (let at = 0; ; at += blockSize) {
      if (at + blockSize > prompt.length) return at;
      before = nameOf(before, prompt.slice(at, at + blockSize), request);
      const number = this.blocks.get(before);
      if (number === undefined || (medium && !this.names.get(number).media.has(medium))) return at;
    }
  }
}

const key = (number) => BigInt.asUintN(64, BigInt(number)).toString();
