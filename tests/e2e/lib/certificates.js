// Self-signed certificates for servers on this machine, made by the openssl program.

import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { temporaryFolder } from './server.js';

// {cert, key, ca}: the paths of the two PEM files, and the certificate's text, for clients to trust.
export function certificate(name) {
  const folder = temporaryFolder();
  const cert = join(folder, 'cert.pem');
  const key = join(folder, 'key.pem');
  execFileSync('openssl', ['req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes', '-days', '2',
    '-keyout', key, '-out', cert, '-subj', `/CN=${name}`, '-addext', 'subjectAltName=IP:127.0.0.1'], { stdio: 'ignore' });
  return { cert, key, ca: readFileSync(cert, 'utf8') };
}
