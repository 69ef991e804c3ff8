// Several servers, and three ways to choose among them for agents' traffic: in turn and by session, both through nginx,
// and by what cache events say is stored where.
//
//   node bench/fleet.mjs [SERVERS [AGENTS [TURNS]]]      8, 24 and 6 if they are not given
//
// Wants nginx, and `npm ci` in tests/e2e, whose router reads the events. Agents of a kind share a long system prompt;
// each goes on with its own conversation, a turn at a time, four of them at once. Every way begins with new servers.
// Counts prompt tokens that were computed, against those that one server with room for everything would compute, and
// measures the time to the first token. The model is tiny: a real one takes a hundred times as long for a token.

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { smallModel } from '../tests/e2e/lib/models.js';
import { Client } from '../tests/e2e/lib/client.js';
import { Router, freeEndpoint } from '../tests/e2e/lib/router.js';
import { serve, temporaryFolder } from '../tests/e2e/lib/server.js';
import { Random, tokens, until } from '../tests/e2e/lib/wait.js';

const [nServers, nAgents, nTurns] = [8, 24, 6].map((otherwise, i) => Number(process.argv[2 + i] ?? otherwise));
const kinds = 3, systemTokens = 600, turnTokens = 80, atOnce = 4;
const model = smallModel('llama');

// ---- Traffic ----

// Prompts of all turns, in the order in which they are sent: [[{session, prompt}] of a turn].
function traffic() {
  const random = new Random(1);
  const systems = Array.from({ length: kinds }, (_, i) => tokens(systemTokens, 100 + i));
  const agents = Array.from({ length: nAgents }, (_, i) => ({ session: `agent ${i}`, prompt: systems[i % kinds] }));
  return Array.from({ length: nTurns }, (_, turn) => {
    for (const [i, agent] of agents.entries()) agent.prompt = [...agent.prompt, ...tokens(turnTokens, 1000 + turn * nAgents + i)];
    const order = agents.map((agent) => [random.below(1 << 30), agent]).sort(([a], [b]) => a - b);
    return order.map(([, { session, prompt }]) => ({ session, prompt }));
  });
}

const needed = kinds * systemTokens + nAgents * nTurns * turnTokens;

// ---- Ways to choose ----

async function nginx(servers, balance) {
  const folder = temporaryFolder(), config = join(folder, 'nginx.conf');
  const port = Number(/\d+$/.exec(await freeEndpoint())[0]);
  writeFileSync(config, `daemon off; pid ${folder}/pid; error_log ${folder}/log; events {}
    http {
      access_log off; client_body_temp_path ${folder}; proxy_temp_path ${folder}; client_max_body_size 32m;
      upstream hearth { ${balance} ${servers.map(({ port: to }) => `server 127.0.0.1:${to};`).join(' ')} }
      server {
        listen 127.0.0.1:${port};
        location / { proxy_pass http://hearth; proxy_set_header Host $host; proxy_buffering off; }
      }
    }`);
  const child = spawn('nginx', ['-e', `${folder}/log`, '-c', config], { stdio: 'inherit' });
  const client = new Client(port);
  await until('nginx answers', async () => (await client.get('/health')).status === 200);
  const send = ({ session, prompt }) => client.complete(bodyOf(prompt), { headers: { 'X-Session-Id': session } });
  const end = async () => { child.kill(); await once(child, 'exit'); };
  return { send, end };
}

// The server that has most of the prompt; of those, the one that was sent least.
function precise(servers, endpoints) {
  const routers = endpoints.map((endpoint) => new Router(endpoint));
  const sent = servers.map(() => 0);
  const send = ({ prompt }) => {
    const known = routers.map((router) => router.tokens(prompt, { model: servers[0].model }));
    const most = Math.max(...known);
    const [, to] = sent.map((n, i) => [n, i]).filter(([, i]) => known[i] === most).sort(([a], [b]) => a - b)[0];
    sent[to]++;
    return servers[to].client.complete(bodyOf(prompt));
  };
  const end = () => Promise.all(routers.map((router) => router.close()));
  return { send, end };
}

const ways = {
  'in turn (nginx)': (servers) => nginx(servers, ''),
  'by session (nginx)': (servers) => nginx(servers, 'hash $http_x_session_id consistent;'),
  'by cache events': precise,
};

// ---- Running ----

const bodyOf = (prompt) => ({ prompt, max_tokens: 1, temperature: 0 });

async function sendAll(requests, send) {
  const replies = [], waiting = [...requests];
  const work = async () => {
    for (let request; (request = waiting.shift()) !== undefined;) {
      const begin = performance.now();
      const { timings } = await send(request);
      replies.push({ computed: timings.prompt_n, ms: performance.now() - begin });
    }
  };
  await Promise.all(Array.from({ length: atOnce }, work));
  return replies;
}

async function measure(open) {
  const endpoints = await Promise.all(Array.from({ length: nServers }, freeEndpoint));
  const servers = [];
  for (const endpoint of endpoints)
    servers.push(await serve({ model, models: { context_window: 4096, n_seq_max: 2, cache_min_tokens: 0 },
      set: { 'server.kv_events': endpoint } }));
  const way = await open(servers, endpoints);
  const replies = [];
  for (const turn of traffic()) replies.push(...await sendAll(turn, way.send));
  await way.end();
  await Promise.all(servers.map((server) => server.stop()));
  const times = replies.map(({ ms }) => ms).sort((a, b) => a - b);
  return { computed: replies.reduce((sum, { computed }) => sum + computed, 0), times };
}

console.log(`${nServers} servers, ${nAgents} agents of ${kinds} kinds, ${nTurns} turns; ${needed} tokens are needed\n`);
console.log('| way | tokens computed | of those needed | first token, median | p90 |');
console.log('| --- | ---: | ---: | ---: | ---: |');
for (const [name, open] of Object.entries(ways)) {
  const { computed, times } = await measure(open);
  const at = (part) => `${times[Math.floor((times.length - 1) * part)].toFixed(0)} ms`;
  console.log(`| ${name} | ${computed} | ${(computed / needed).toFixed(2)} | ${at(0.5)} | ${at(0.9)} |`);
}
