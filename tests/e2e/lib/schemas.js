// JSON schemas that look random but are the same in every run, nested, with $ref, enums, patterns, bounds and unions. All
// strings, lists and numbers are bounded, so that every reply that keeps to one comes to its end.

import { between, pick } from './random.js';

const words = ['alpha', 'beta', 'gamma', 'delta', 'one', 'two', 'ключ', 'a b', 'x"y', 'enum', 'pattern'];

const leaves = {
  string: (random) => ({ type: 'string', minLength: between(random, 0, 2), maxLength: between(random, 2, 8) }),
  pattern: (random) => ({ type: 'string', pattern: pick(random, ['^[a-c]{1,4}$', '^\\d{3}-\\d{2}$', '^(red|green|blue)$', '^[A-Z][a-z]{0,3}x?$', '^a\\.b$', '^"x"$', '^\\s{2}$', '^[^x]{3}$', '^\\S\\W$']) }),
  integer: (random) => {
    const minimum = between(random, -1000, 1000);
    return { type: 'integer', minimum, maximum: minimum + between(random, 0, 5000) };
  },
  small: () => ({ type: 'integer', minimum: 0, maximum: 9 }),
  exclusive: () => ({ type: 'integer', exclusiveMinimum: 3, exclusiveMaximum: 12 }),
  boolean: () => ({ type: 'boolean' }),
  nothing: () => ({ type: 'null' }),
  choice: (random) => ({ enum: [pick(random, words), between(random, 0, 99), null, true, pick(random, words)].filter((v, i, all) => all.indexOf(v) === i) }),
  constant: (random) => ({ const: pick(random, [...words, 7, { a: [1, 'b'] }]) }),
  date: () => ({ type: 'string', format: 'date' }),
  either: () => ({ type: ['boolean', 'null'] }),
};

// Bounds of numbers are not enforced in a tool's parameters, so that these are for replies alone.
export const numbers = (random) => {
  const minimum = between(random, -1000, 1000) / 8;
  return { type: 'number', [pick(random, ['minimum', 'exclusiveMinimum'])]: minimum, maximum: minimum + between(random, 1, 500) / 100 };
};

export const nodes = {
  object(random, depth) {
    const properties = {};
    for (let i = between(random, 1, 4); i > 0; i--) properties[pick(random, words)] = schema(random, depth - 1);
    const names = Object.keys(properties);
    return { type: 'object', properties, required: names.filter(() => random() < 0.6), additionalProperties: false };
  },
  array: (random, depth) => ({ type: 'array', items: schema(random, depth - 1), minItems: between(random, 0, 2), maxItems: between(random, 2, 3) }),
  tuple: (random, depth) => ({ type: 'array', prefixItems: [schema(random, depth - 1), schema(random, 0)], minItems: 2, maxItems: 2 }),
  anyOf: (random, depth) => ({ anyOf: [schema(random, depth - 1), schema(random, depth - 1)] }),
  oneOf: (random) => ({ oneOf: [leaves.boolean(random), leaves.integer(random), leaves.pattern(random)] }),
  allOf(random) {
    const part = (name) => ({ type: 'object', properties: { [name]: leaves.small(random) }, required: [name] });
    return { allOf: [part('left'), part('right')] };
  },
  reference: (random) => ({ $ref: pick(random, ['#/$defs/point', '#/$defs/tree', '#/definitions/name']) }),
};

// What the references of these schemas point to: to be added to the outermost one.
export const definitions = {
  $defs: {
    point: { type: 'object', properties: { x: leaves.small(), y: leaves.small() }, required: ['x', 'y'], additionalProperties: false },
    tree: {
      type: 'object', additionalProperties: false, required: ['leaf'],
      properties: { leaf: { type: 'boolean' }, child: { anyOf: [{ $ref: '#/$defs/point' }, { type: 'null' }] } },
    },
  },
  definitions: { name: { type: 'string', maxLength: 5 } },
};

function schema(random, depth) {
  const kinds = depth > 0 ? { ...nodes, ...leaves } : leaves;
  return pick(random, Object.values(kinds))(random, depth);
}
