// The gaps between the tokens of a stream, measured on a thread of their own: the test's thread makes large bodies
// meanwhile, and what holds it up must not look like the server's doing.

import { Worker, isMainThread, parentPort, workerData } from 'node:worker_threads';
import http from 'node:http';

// Streams a completion of `body` until end(); largest() is the longest time without a byte, in milliseconds, since the
// last mark(). A stream that ends by itself is begun again, and that pause does not count.
export class Gaps {
  static async open(port, body) {
    const gaps = new Gaps();
    gaps.worker = new Worker(new URL(import.meta.url), { workerData: { port, body } });
    gaps.failed = new Promise((_, reject) => { gaps.worker.once('error', reject); });
    gaps.failed.catch(() => {}); // whoever waits hears of it
    await gaps.ask('mark');
    return gaps;
  }

  ask(what) {
    const answer = new Promise((resolve) => { this.worker.once('message', resolve); });
    this.worker.postMessage(what);
    return Promise.race([answer, this.failed]);
  }

  mark() {
    return this.ask('mark');
  }

  largest() {
    return this.ask('largest');
  }

  end() {
    return this.worker.terminate();
  }
}

if (!isMainThread) {
  const { port, body } = workerData;
  let last = null; // when the last byte came; null between two streams
  let largest = 0;
  let waiting = null; // a mark that waits for the stream to flow

  const note = () => {
    const now = performance.now();
    if (last !== null) largest = Math.max(largest, now - last);
    last = now;
    if (waiting !== null) {
      largest = 0;
      parentPort.postMessage(true);
      waiting = null;
    }
  };

  const stream = () => {
    const text = JSON.stringify(body);
    const request = http.request({ host: '127.0.0.1', port, method: 'POST', path: '/v1/completions', headers: {
      'Content-Type': 'application/json', 'Content-Length': Buffer.byteLength(text) } }, (response) => {
      if (response.statusCode !== 200) throw new Error(`the stream beside it got ${response.statusCode}`);
      response.on('data', note);
      response.on('end', () => {
        last = null;
        stream();
      });
    });
    request.on('error', (error) => { throw error; });
    request.end(text);
  };

  parentPort.on('message', (what) => {
    if (what === 'mark') {
      waiting = true;
    } else {
      // What is still missing counts up to now.
      if (last !== null) largest = Math.max(largest, performance.now() - last);
      parentPort.postMessage(largest);
    }
  });
  stream();
}
