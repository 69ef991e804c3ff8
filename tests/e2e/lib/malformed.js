// What no client should send: a list written by hand, and mutations of sound requests.

const end = '\r\n\r\n';
const host = 'Host: localhost\r\n';
const small = JSON.stringify({ prompt: 'a', max_tokens: 1 });
const start = `POST /v1/completions HTTP/1.1\r\n${host}`;
const post = (fields, body = '') => Buffer.from(`${start}${fields}\r\n${body}`, 'latin1');
const get = (line, fields = host) => Buffer.from(`${line}\r\n${fields}\r\n`, 'latin1');
const length = `Content-Length: ${small.length}\r\n`;
const chunked = 'Transfer-Encoding: chunked\r\n';

// [name, bytes, the status it must have, if it can be only one]
export const malformed = [
  ['nothing', Buffer.alloc(0)],
  ['a line end', Buffer.from('\r\n')],
  ['line ends only', Buffer.from('\r\n'.repeat(1000))],
  ['a NUL', Buffer.of(0)],
  ['NULs', Buffer.alloc(5000)],
  ['high bytes', Buffer.alloc(5000, 0xff)],
  ['a TLS hello', Buffer.from('16030100a5010000a10303', 'hex')],
  ['an SSH banner', Buffer.from('SSH-2.0-OpenSSH_9.2\r\n')],
  ['an HTTP/2 preface', Buffer.from('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n')],
  ['a response', Buffer.from('HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n')],
  ['no version', get('GET /health', '')],
  ['no path', get('GET HTTP/1.1')],
  ['no method', get('/health HTTP/1.1')],
  ['an empty method', get(' /health HTTP/1.1')],
  ['a made-up method', get('FROB /health HTTP/1.1')],
  ['a method in small letters', get('get /health HTTP/1.1')],
  ['a long method', get(`${'A'.repeat(10000)} / HTTP/1.1`)],
  ['version 0.9', get('GET /health HTTP/0.9')],
  ['version 2.0', get('GET /health HTTP/2.0')],
  ['version 9.9', get('GET /health HTTP/9.9')],
  ['version x', get('GET /health HTTP/x')],
  ['another protocol', get('GET /health RTSP/1.0')],
  ['two spaces', get('GET  /health  HTTP/1.1')],
  ['tabs', get('GET\t/health\tHTTP/1.1')],
  ['a path with a NUL', get('GET /hea\0lth HTTP/1.1')],
  ['a path with a line end', get('GET /hea\rlth HTTP/1.1')],
  ['a path of high bytes', get('GET /\xff\xfe\xfd HTTP/1.1')],
  ['a path with wrong percent signs', get('GET /%zz%1 HTTP/1.1'), [400, 404]],
  ['a path that climbs', get('GET /../../../../etc/passwd HTTP/1.1'), [400, 404]],
  ['a path of 100,000 bytes', get(`GET /${'a'.repeat(100000)} HTTP/1.1`)],
  ['a query of 100,000 bytes', get(`GET /health?${'a'.repeat(100000)} HTTP/1.1`)],
  ['an absolute address', get('GET http://example.org/ HTTP/1.1')],
  ['an address that is none', get('GET http://[::1/ HTTP/1.1')],
  ['a star', get('GET * HTTP/1.1')],
  ['CONNECT', get('CONNECT example.org:443 HTTP/1.1')],
  ['TRACE', get('TRACE / HTTP/1.1')],
  ['an upgrade', get('GET /health HTTP/1.1', `${host}Connection: Upgrade\r\nUpgrade: websocket\r\n`)],
  ['a field without a colon', get('GET /health HTTP/1.1', `${host}Nonsense\r\n`)],
  ['a field without a name', get('GET /health HTTP/1.1', `${host}: x\r\n`)],
  ['a field with a space before the colon', get('GET /health HTTP/1.1', `${host}Name : x\r\n`)],
  ['a folded field', get('GET /health HTTP/1.1', `${host}Name: x\r\n  y\r\n`)],
  ['a field of 1,000,000 bytes', get('GET /health HTTP/1.1', `${host}Name: ${'x'.repeat(1000000)}\r\n`)],
  ['a field name of 100,000 bytes', get('GET /health HTTP/1.1', `${host}${'x'.repeat(100000)}: x\r\n`)],
  ['20,000 fields', get('GET /health HTTP/1.1', host + 'a: b\r\n'.repeat(20000))],
  ['a field with a NUL', get('GET /health HTTP/1.1', `${host}Name: a\0b\r\n`)],
  ['a head without an end', Buffer.from(`GET /health HTTP/1.1\r\n${host}`)],
  ['line feeds alone', Buffer.from('GET /health HTTP/1.1\nHost: localhost\n\n')],
  ['carriage returns alone', Buffer.from('GET /health HTTP/1.1\rHost: localhost\r\r')],
  ['no host', get('GET /health HTTP/1.1', '')],
  ['two hosts', get('GET /health HTTP/1.1', host + host)],
  ['a negative length', post('Content-Length: -1\r\n', small), 400],
  ['a length in words', post('Content-Length: twenty\r\n', small), 400],
  ['a length with a plus', post(`Content-Length: +${small.length}\r\n`, small), 400],
  ['a length in hexadecimal', post('Content-Length: 0x20\r\n', small), 400],
  ['a length past 64 bits', post('Content-Length: 99999999999999999999999\r\n', small), [400, 413]],
  ['a length of 2^63', post('Content-Length: 9223372036854775808\r\n', small), [400, 413]],
  ['a length of 2^64 - 1', post('Content-Length: 18446744073709551615\r\n', small), [400, 413]],
  ['an empty length', post('Content-Length: \r\n', small)],
  ['two lengths', post(`${length}Content-Length: 5\r\n`, small), 400],
  ['a list of lengths', post(`Content-Length: ${small.length}, 5\r\n`, small), 400],
  ['a length and chunks', post(length + chunked, `${small.length.toString(16)}\r\n${small}\r\n0${end}`), 400],
  ['a length longer than the body', post(`Content-Length: ${small.length + 10}\r\n`, small)],
  ['a length shorter than the body', post(`Content-Length: ${small.length - 5}\r\n`, small), 400],
  ['no length and no chunks', post('', small)],
  ['a made-up encoding', post('Transfer-Encoding: rot13\r\n', small)],
  ['chunked twice', post('Transfer-Encoding: chunked, chunked\r\n', `0${end}`)],
  ['chunked not last', post('Transfer-Encoding: chunked, gzip\r\n', `0${end}`)],
  ['a chunk size of words', post(chunked, `zz\r\n${small}\r\n0${end}`), 400],
  ['a negative chunk size', post(chunked, `-5\r\n${small}\r\n0${end}`), 400],
  ['a chunk size past 64 bits', post(chunked, `fffffffffffffffff\r\n${small}\r\n0${end}`), [400, 413]],
  ['a chunk of 2^63 - 1 bytes', post(chunked, `7fffffffffffffff\r\n${small}`)],
  ['a chunk longer than its size', post(chunked, `2\r\n${small}\r\n0${end}`), 400],
  ['a chunk without its end', post(chunked, `${small.length.toString(16)}\r\n${small}`)],
  ['a chunk extension of 100,000 bytes', post(chunked, `1;${'x'.repeat(100000)}\r\n{\r\n0${end}`)],
  ['trailers without an end', post(chunked, `1\r\n{\r\n0\r\n${'a: b\r\n'.repeat(20000)}`)],
  ['an empty chunked body', post(chunked, `0${end}`), 400],
  ['an expectation that is none', post(`${length}Expect: miracles\r\n`, small)],
  ['an expectation, then the body', post(`${length}Expect: 100-continue\r\n`, small)],
  ['a content type that is none', post(`${length}Content-Type: \xff/\xff\r\n`, small)],
  ['a compressed body that is none', post(`${length}Content-Encoding: gzip\r\n`, small)],
  ['a body with GET', get('GET /health HTTP/1.1', `${host}Content-Length: 5\r\n`)],
  ['a request, then rubbish', Buffer.concat([get('GET /health HTTP/1.1'), Buffer.from('rubbish\0\r\n\r\n')])],
];

const request = (path, value) => {
  const body = JSON.stringify(value);
  return Buffer.from(`POST ${path} HTTP/1.1\r\n${host}Content-Type: application/json\r\n`
    + `Content-Length: ${Buffer.byteLength(body)}\r\n\r\n${body}`);
};

const messages = [{ role: 'system', content: 'Be kind. ☃' }, { role: 'user', content: 'Who are you?' }];

// What the mutations start from; all of it cheap to answer.
export const sound = [
  get('GET /health HTTP/1.1'),
  get('GET /v1/models HTTP/1.1', `${host}Accept: */*\r\nConnection: keep-alive\r\n`),
  get('OPTIONS /v1/chat/completions HTTP/1.1',
    `${host}Origin: http://example.org\r\nAccess-Control-Request-Method: POST\r\n`),
  request('/v1/completions', { prompt: 'My name is', max_tokens: 1, temperature: 0, stop: ['x', 'y'] }),
  request('/v1/completions', { prompt: [5, 300, 77, 900], max_tokens: 2, stream: true, logit_bias: { 5: -1 } }),
  request('/v1/completions', { prompt: ['a', 'b'], max_tokens: 1, n: 1, echo: true, seed: 4, top_p: 0.5, top_k: 10 }),
  request('/v1/chat/completions', { model: 'demo', messages, max_tokens: 2, stream: true,
    stream_options: { include_usage: true } }),
  request('/v1/chat/completions', { model: 'demo', messages, max_completion_tokens: 1, frequency_penalty: 0.5 }),
  post(chunked, `${small.length.toString(16)}\r\n${small}\r\n0${end}`),
];

const splices = [
  '\r\n', '\r\n\r\n', '\0', '\xff', '"', '{', '}', '[', ']', ',', ':', '\\', '\\u', '\\ud83d', '-', '1e999', '0',
  '999999999999', 'null', 'true', '{}', '[[[[', ' ', '\t', '\n', 'HTTP/1.1', 'Content-Length: 5\r\n', chunked,
  '%00', 'Expect: 100-continue\r\n', 'Connection: close\r\n', 'é', '\xc3',
];

const operations = [
  // A bit turned, a byte changed, a piece cut out, doubled, or replaced; the end cut off; two places exchanged.
  (bytes, random) => {
    const copy = Buffer.from(bytes);
    copy[random.below(copy.length)] ^= 1 << random.below(8);
    return copy;
  },
  (bytes, random) => {
    const copy = Buffer.from(bytes);
    copy[random.below(copy.length)] = random.below(256);
    return copy;
  },
  (bytes, random) => {
    const at = random.below(bytes.length);
    return Buffer.concat([bytes.subarray(0, at), bytes.subarray(Math.min(bytes.length, at + random.between(1, 20)))]);
  },
  (bytes, random) => {
    const at = random.below(bytes.length);
    const piece = bytes.subarray(at, at + random.between(1, 40));
    return Buffer.concat([bytes.subarray(0, at), piece, bytes.subarray(at)]);
  },
  (bytes, random) => {
    const at = random.below(bytes.length);
    return Buffer.concat([bytes.subarray(0, at), Buffer.from(random.pick(splices), 'latin1'),
      bytes.subarray(at + random.below(3))]);
  },
  (bytes, random) => bytes.subarray(0, random.between(1, bytes.length)),
  (bytes, random) => {
    const copy = Buffer.from(bytes);
    const [a, b] = [random.below(copy.length), random.below(copy.length)];
    [copy[a], copy[b]] = [copy[b], copy[a]];
    return copy;
  },
];

// One to three changes to a request. What is left of it is never empty.
export function mutate(bytes, random) {
  let changed = bytes;
  for (let i = random.between(1, 3); i > 0; i--) {
    const next = random.pick(operations)(changed, random);
    if (next.length > 0) changed = next;
  }
  return changed;
}
