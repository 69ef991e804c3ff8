// How long a server takes to answer /health, asked again and again on a thread of its own: the test's thread reads large
// answers meanwhile, and what holds it up must not look like the server's doing.

import { Worker, isMainThread, parentPort, workerData } from 'node:worker_threads';
import http from 'node:http';

// slowest() is the longest answer since the last call, or the one that is awaited, in milliseconds.
export class Health {
  constructor(port) {
    this.worker = new Worker(new URL(import.meta.url), { workerData: { port } });
    this.failed = new Promise((_, reject) => { this.worker.once('error', reject); });
    this.failed.catch(() => {}); // whoever waits hears of it
  }

  slowest() {
    const answer = new Promise((resolve) => { this.worker.once('message', resolve); });
    this.worker.postMessage('slowest');
    return Promise.race([answer, this.failed]);
  }

  end() {
    return this.worker.terminate();
  }
}

if (!isMainThread) {
  const agent = new http.Agent({ keepAlive: true });
  let slowest = 0;
  let from = 0;
  const ask = () => {
    from = performance.now();
    http.get({ host: '127.0.0.1', port: workerData.port, path: '/health', agent }, (response) => {
      response.resume().on('end', () => {
        slowest = Math.max(slowest, performance.now() - from);
        from = performance.now();
        setImmediate(ask);
      });
    }).on('error', (error) => { throw error; });
  };
  parentPort.on('message', () => {
    parentPort.postMessage(Math.max(slowest, performance.now() - from));
    slowest = 0;
  });
  ask();
}
