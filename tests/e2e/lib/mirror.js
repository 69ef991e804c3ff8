// A server that models are pulled from, as Hugging Face's and as plain files, which misbehaves as a test wants. It notes
// every request and counts the bytes of files that it has sent.

import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { createServer } from 'node:http';
import { createServer as createSecureServer } from 'node:https';

export const sha256 = (bytes) => createHash('sha256').update(bytes).digest('hex');

// No proxy of the machine's, no token of the user's.
export const plainEnvironment = {
  http_proxy: '', https_proxy: '', all_proxy: '', HTTP_PROXY: '', HTTPS_PROXY: '', ALL_PROXY: '', no_proxy: '*', NO_PROXY: '*',
  HF_TOKEN: '', HF_ENDPOINT: '', HEARTH_MODELS: '', HEARTH_NAMES: '', XDG_DATA_HOME: '', XDG_CONFIG_HOME: '',
};

// A file may be an object in place of a buffer: {length, digest, subarray(first, end)}.
const digestOf = (bytes) => bytes.digest ?? sha256(bytes);

// With `tls`, a certificate and its key, it speaks HTTPS. `files` is what it has: {'owner/repo/path': Buffer}, in whose URLs /resolve/main/ comes after the repository; below
// /files/ they are plain.
// `faults.answer(request, response, file)` may answer in place of it, and then gives true; file: {name, bytes, etag}.
export class Mirror {
  static async open(t, files = {}, { host = '127.0.0.1', tls } = {}) {
    const mirror = new Mirror();
    Object.assign(mirror, { files, faults: {}, requests: [], sent: 0, pages: Infinity, listed: {} });
    const answer = (request, response) => mirror.answer(request, response);
    mirror.server = tls ? createSecureServer(tls, answer) : createServer(answer);
    mirror.server.listen(0, host);
    await once(mirror.server, 'listening');
    mirror.host = host;
    mirror.url = `${tls ? 'https' : 'http'}://${host}:${mirror.server.address().port}`;
    t.after(() => mirror.close());
    return mirror;
  }

  close() {
    this.server.closeAllConnections();
    this.server.close();
  }

  // The environment of a pull from here; its models go into the folder.
  environment(folder, more = {}) {
    return { ...plainEnvironment, HF_ENDPOINT: this.url, HEARTH_MODELS: folder, ...more };
  }

  // Requests for the bytes of files, in order.
  get fetched() {
    return this.requests.filter(({ path }) => /\/resolve\/|^\/files\//.test(path));
  }

  forget() {
    this.requests = [];
    this.sent = 0;
  }

  answer(request, response) {
    const { pathname, searchParams } = new URL(request.url, this.url);
    const path = decodeURIComponent(pathname);
    this.requests.push({ path: request.url, headers: request.headers, range: request.headers.range });
    const list = /^\/api\/models\/([^/]+\/[^/]+)\/tree\/main$/.exec(path);
    const name = path.replace(/^\/(files\/)?/, '').replace('/resolve/main/', '/');
    if (list) return this.list(response, list[1], Number(searchParams.get('cursor') ?? 0));
    if (!(name in this.files)) return response.writeHead(404).end();
    const file = this.file(name);
    if (!this.faults.answer?.(request, response, file)) this.send(request, response, file);
  }

  // A file as it is now.
  file(name) {
    const bytes = this.files[name];
    return { name, bytes, etag: `"${digestOf(bytes).slice(0, 16)}"` };
  }

  // A page of Hugging Face's list of a repository; `listed` changes what it says of a file.
  list(response, repository, from) {
    const own = Object.keys(this.files).filter((name) => name.startsWith(`${repository}/`));
    const entries = own.map((name) => {
      const bytes = this.files[name];
      const says = { size: bytes.length, oid: digestOf(bytes), ...this.listed[name] };
      return { type: 'file', path: name.slice(repository.length + 1), size: says.size, oid: '0', lfs: { oid: says.oid, size: says.size, pointerSize: 1 } };
    });
    if (own.length === 0) return response.writeHead(401).end('Invalid username or password.');
    const next = from + this.pages;
    const link = this.next ?? (next < entries.length ? `${this.url}/api/models/${repository}/tree/main?recursive=1&cursor=${next}` : undefined);
    response.writeHead(200, { 'Content-Type': 'application/json', ...link === undefined ? {} : { Link: `<${link}>; rel="next"` } });
    response.end(JSON.stringify(entries.slice(from, next)));
  }

  // The bytes that a request asks for, as a server should send them.
  send(request, response, { bytes, etag }, options = {}) {
    const asked = /^bytes=(\d+)-(\d+)$/.exec(request.headers.range ?? '');
    const condition = request.headers['if-range'];
    if (asked && (condition === undefined || condition === etag)) {
      const [first, last] = [Number(asked[1]), Math.min(Number(asked[2]), bytes.length - 1)];
      response.writeHead(206, { ETag: etag, 'Content-Range': `bytes ${first}-${last}/${bytes.length}`, 'Content-Length': last - first + 1 });
      this.write(response, bytes.subarray(first, last + 1), options);
    } else {
      response.writeHead(200, { ETag: etag, 'Content-Length': bytes.length });
      this.write(response, bytes, options);
    }
  }

  // `cut`: the connection ends after so many bytes; `hang`: it stays, and nothing follows them.
  write(response, bytes, { cut, hang } = {}) {
    const part = bytes.subarray(0, cut ?? hang ?? bytes.length);
    this.sent += part.length;
    if (hang !== undefined && hang < bytes.length) response.write(part);
    else if (cut !== undefined && cut < bytes.length) response.write(part, () => response.destroy());
    else response.end(part);
  }
}
