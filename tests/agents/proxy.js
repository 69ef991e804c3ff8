// Stands between an agent and a server: replies are capped, so that a model of random weights does not talk for ever, and
// what each request cost is taken from its answer.

import { createServer } from 'node:http';
import { Readable } from 'node:stream';

const mostTokens = 16;

// How each API names the length of a reply and what was cached. `cost` is given the answer's text, streamed or not.
const numbers = (text, ...patterns) => patterns.map((pattern) => Number([...text.matchAll(pattern)].at(-1)?.[1] ?? 0));
const apis = [
  {
    path: /\/v1\/messages$/,
    cap: (body) => { body.max_tokens = Math.min(body.max_tokens, mostTokens); },
    cost: (text) => {
      const [rest, kept, cached] = numbers(text, /"input_tokens":\s*(\d+)/g, /"cache_creation_input_tokens":\s*(\d+)/g,
        /"cache_read_input_tokens":\s*(\d+)/g);
      return { prompt: rest + kept + cached, cached };
    },
  },
  {
    path: /\/v1\/responses$/,
    cap: (body) => { body.max_output_tokens = mostTokens; },
    cost: (text) => {
      const [prompt, cached] = numbers(text, /"input_tokens":\s*(\d+)/g, /"cached_tokens":\s*(\d+)/g);
      return { prompt, cached };
    },
  },
  {
    path: /\/v1\/chat\/completions$/,
    cap: (body) => {
      delete body.max_completion_tokens;
      body.max_tokens = mostTokens;
    },
    cost: (text) => {
      // Not every agent asks for the usage of a stream; both servers tell it in the timings.
      const [cached, computed] = numbers(text, /"cache_n":\s*(\d+)/g, /"prompt_n":\s*(\d+)/g);
      return { prompt: cached + computed, cached };
    },
  },
];

async function bytesOf(stream) {
  const parts = [];
  for await (const part of stream) parts.push(part);
  return Buffer.concat(parts);
}

// How many tokens the prompt has in common, from its start, with the prompt most like it that the server still has.
async function inCommon(target, body) {
  const answer = await fetch(new URL('/cache/lookup', target), { method: 'POST', headers: { 'Content-Type': 'application/json' }, body });
  return (await answer.json()).divergence?.position ?? 0;
}

// `requests` gets {path, status, prompt, cached, common, text} for every request; text is an error's, and common is told
// where the server can be asked for it.
export async function proxy(target, requests, { looksUp = false } = {}) {
  const server = createServer(async (incoming, outgoing) => {
    const { pathname } = new URL(incoming.url, target);
    const api = incoming.method === 'POST' && apis.find(({ path }) => path.test(pathname));
    let body = await bytesOf(incoming);
    if (api) {
      const json = JSON.parse(body);
      api.cap(json);
      body = Buffer.from(JSON.stringify(json));
    }
    const common = api && looksUp ? await inCommon(target, body) : undefined;
    const headers = Object.fromEntries(Object.entries(incoming.headers)
      .filter(([name]) => !['host', 'connection', 'content-length', 'transfer-encoding', 'accept-encoding'].includes(name)));
    const gone = new AbortController();
    outgoing.on('close', () => gone.abort());
    try {
      const answer = await fetch(new URL(incoming.url, target), {
        method: incoming.method, headers, body: body.length > 0 ? body : undefined, signal: gone.signal,
      });
      const [kept, sent] = answer.body ? answer.body.tee() : [null, null];
      const passed = Object.fromEntries([...answer.headers].filter(([name]) => !['connection', 'transfer-encoding', 'content-length'].includes(name)));
      outgoing.writeHead(answer.status, passed);
      if (sent) Readable.fromWeb(sent).on('error', () => outgoing.destroy()).pipe(outgoing); // the agent may hang up
      else outgoing.end();
      const text = kept ? await new Response(kept).text() : '';
      const failed = answer.status >= 400;
      requests.push({ path: pathname, status: answer.status, ...api && !failed && { ...api.cost(text), common }, ...failed && { text } });
    } catch (error) {
      if (!gone.signal.aborted) requests.push({ path: pathname, status: 599, text: String(error.cause ?? error) });
      outgoing.destroy();
    }
  });
  await new Promise((resolve) => { server.listen(0, '127.0.0.1', resolve); });
  return { url: `http://127.0.0.1:${server.address().port}`, close: () => server.closeAllConnections() ?? server.close() };
}
