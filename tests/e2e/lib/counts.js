// A reporter of node --test: for each file one line "NAME PASSED FAILED SKIPPED SECONDS", by which scripts/test.sh counts.

import { basename } from 'node:path';

export default async function* counts(source) {
  const files = new Map();
  const countsOf = (file) => {
    const name = basename(file);
    if (!files.has(name)) files.set(name, { passed: 0, failed: 0, skipped: 0, ms: 0 });
    return files.get(name);
  };
  for await (const { type, data } of source) {
    if ((type !== 'test:pass' && type !== 'test:fail') || !data.file) continue;
    // A file that ends badly by itself fails as a test of its own name.
    const entry = countsOf(data.file);
    const isSuite = data.details?.type === 'suite';
    if (data.nesting === 0) entry.ms += data.details?.duration_ms ?? 0;
    if (isSuite) continue;
    if (data.skip !== undefined || data.todo !== undefined) entry.skipped++;
    else if (type === 'test:pass') entry.passed++;
    else entry.failed++;
  }
  for (const [name, { passed, failed, skipped, ms }] of files) yield `${name} ${passed} ${failed} ${skipped} ${(ms / 1000).toFixed(1)}\n`;
}
