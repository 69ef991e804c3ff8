// Stands between a client and hearth: passes on what comes, at once and as it is, and notes what was asked and answered.

import { once } from 'node:events';
import { createServer, request as httpRequest } from 'node:http';

// One exchange. `status` is 0 until the head of the answer is there; `ended` says how it went: 'whole', or who left.
class Exchange {
  constructor({ method, url }) {
    Object.assign(this, { method, path: url, began: performance.now(), status: 0, headers: {}, ended: null, asked: [], answered: [] });
  }

  get body() {
    return JSON.parse(Buffer.concat(this.asked).toString());
  }

  get reply() {
    return Buffer.concat(this.answered).toString();
  }

  // What the end of a stream says of its tokens; `total` is all that were in the cells then.
  get timings() {
    const { timings } = this.reply.split('\n').filter((line) => /^data: \{/.test(line)).map((line) => JSON.parse(line.slice(6))).at(-1);
    return { ...timings, total: timings.cache_n + timings.prompt_n + timings.predicted_n };
  }

  end(how) {
    this.ended ??= how;
    this.took ??= performance.now() - this.began;
  }
}

// `t` is anything with after(). of(path) are the exchanges of a path, `from` the nth of all on.
export async function record(t, port) {
  const exchanges = [];
  const front = createServer((incoming, outgoing) => {
    const exchange = new Exchange(incoming);
    exchanges.push(exchange);
    const headers = { ...incoming.headers, host: `127.0.0.1:${port}` };
    const onward = httpRequest({ port, path: incoming.url, method: incoming.method, headers, agent: false }, (answer) => {
      exchange.status = answer.statusCode;
      exchange.headers = answer.headers;
      outgoing.writeHead(answer.statusCode, answer.headers);
      answer.on('data', (chunk) => exchange.answered.push(chunk));
      answer.on('end', () => exchange.end('whole'));
      answer.on('error', () => outgoing.destroy());
      answer.pipe(outgoing);
    });
    onward.on('error', () => {
      exchange.end('the server left');
      outgoing.destroy();
    });
    outgoing.on('close', () => {
      exchange.end('the client left');
      onward.destroy();
    });
    incoming.on('data', (chunk) => exchange.asked.push(chunk));
    incoming.pipe(onward);
  }).listen(0, '127.0.0.1');
  await once(front, 'listening');
  t.after(() => {
    front.closeAllConnections();
    front.close();
  });
  const of = (path, from = 0) => exchanges.slice(from).filter((exchange) => exchange.path === path);
  return { url: `http://127.0.0.1:${front.address().port}`, exchanges, of };
}
