// Reads the types of an SDK's own .d.ts file, as far as its unions of messages, items and blocks need it, and makes a
// minimal object of each member: what the members of its interface must be, and nothing else.

import { readFileSync } from 'node:fs';

// The declarations of a file by their full names: {members: {name: {type, optional}}, bases} of an interface, {type} of
// a type alias.
export function readTypes(path) {
  const text = readFileSync(path, 'utf8').replace(/\/\*[\s\S]*?\*\//g, '').replace(/^\s*\/\/.*$/gm, '');
  const types = new Map();
  const scope = [];
  const full = (name) => [...scope, name].join('.');
  let at = 0;
  const word = /\b(?:export )?(?:declare )?(namespace|interface|type) (\w+)(?:<[^>{]*>)?\s*(?:extends ([^{]+))?([{=])|([{}])/g;
  let depth = 0;
  const opened = []; // depths at which namespaces were opened
  while ((word.lastIndex = at, word.exec(text)) !== null) {
    word.lastIndex = at;
    const match = word.exec(text);
    const [whole, kind, name, bases, sign, brace] = match;
    at = match.index + whole.length;
    if (brace === '{') depth++;
    else if (brace === '}') {
      if (opened.at(-1) === depth) {
        opened.pop();
        scope.pop();
      }
      depth--;
    } else if (kind === 'namespace') {
      depth++;
      opened.push(depth);
      scope.push(name);
    } else if (kind === 'type' && sign === '=') {
      const end = until(text, at, ';');
      types.set(full(name), { scope: [...scope], type: text.slice(at, end).trim() });
      at = end;
    } else if (kind === 'interface') {
      const end = until(text, at, '}');
      types.set(full(name), { scope: [...scope], bases: (bases ?? '').split(',').map((b) => b.trim()).filter(Boolean), members: membersOf(text.slice(at, end)) });
      at = end + 1;
    }
  }
  return types;
}

// The index of `sign` outside of all brackets and strings, from `at` on.
function until(text, at, sign) {
  for (let depth = 0; at < text.length; at++) {
    const c = text[at];
    if (depth === 0 && c === sign) return at;
    if (c === "'" || c === '"') at = text.indexOf(c, at + 1);
    else if ('{([<'.includes(c)) depth++;
    else if ('})]>'.includes(c) && text[at - 1] !== '=') depth--;
  }
  return at;
}

function split(text, sign) {
  const parts = [];
  for (let at = 0; at <= text.length;) {
    const end = until(text, at, sign);
    parts.push(text.slice(at, end).trim());
    at = end + 1;
  }
  return parts.filter(Boolean);
}

function membersOf(text) {
  const members = {};
  for (const part of split(text, ';')) {
    const match = /^(?:readonly )?['"]?(\w+)['"]?(\?)?:\s*([\s\S]+)$/.exec(part);
    if (match) members[match[1]] = { optional: match[2] === '?', type: match[3].trim() };
  }
  return members;
}

// A type by the name that is used in `scope`; those of other files are unknown, null.
function find(types, scope, name) {
  for (let n = scope.length; n >= 0; n--) {
    const found = types.get([...scope.slice(0, n), name].join('.'));
    if (found) return found;
  }
  const inner = name.indexOf('.'); // of a module that the file imports from: often itself
  return inner < 0 ? null : find(types, [], name.slice(inner + 1));
}

// All members of an interface, with those of its bases.
function allMembers(types, found) {
  const bases = found.bases.map((base) => find(types, found.scope, base)).filter((base) => base?.members);
  return Object.assign({}, ...bases.map((base) => allMembers(types, base)), found.members);
}

// The interfaces of a union, with those of its unions.
export function membersOfUnion(types, name, scope = []) {
  const found = find(types, scope, name);
  if (!found) return [];
  if (found.members) return [{ name, found }];
  return split(found.type, '|').flatMap((part) => membersOfUnion(types, part, found.scope));
}

// A value of a type. Strings that are free are made by `text(path)`; optional members are there if `whole`; of a union it
// is the alternative with the number `pick`, as far as there are so many.
export function sample(types, found, how, path = '') {
  const value = {};
  for (const [name, member] of Object.entries(allMembers(types, found))) {
    if (member.optional && !how.whole) continue;
    value[name] = valueOf(types, found.scope, member.type, how, path ? `${path}.${name}` : name);
  }
  return value;
}

function valueOf(types, scope, type, how, path) {
  const parts = split(type, '|').filter((part) => part !== 'null');
  const first = parts[how.pick % parts.length] ?? 'null';
  const literal = /^'(.*)'$/.exec(first) ?? /^"(.*)"$/.exec(first);
  const list = /^Array<([\s\S]*)>$/.exec(first);
  if (literal) return literal[1];
  if (list) return [valueOf(types, scope, list[1], how, `${path}[0]`)];
  if (first.startsWith('{')) return Object.fromEntries(Object.entries(membersOf(first.slice(1, -1))).filter(([, m]) => !m.optional).map(([name, m]) => [name, valueOf(types, scope, m.type, how, `${path}.${name}`)]));
  const simple = { string: () => how.text(path), number: () => 1, boolean: () => true, null: () => null, unknown: () => ({}), true: () => true, false: () => false };
  if (simple[first]) return simple[first]();
  const found = find(types, scope, first);
  if (found?.members) return sample(types, found, how, path);
  if (found) return valueOf(types, found.scope, found.type, how, path);
  return {}; // another file's, a generic one
}

// What a member's `type` may be, of an interface.
export const literalsOf = (types, found) => split(allMembers(types, found).type?.type ?? '', '|').map((part) => /^'(.*)'$/.exec(part)?.[1]).filter(Boolean);
