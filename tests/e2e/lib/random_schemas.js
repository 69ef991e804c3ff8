// Random JSON schemas of all that is enforced (JSON Schema 2020-12), nested, with references, for the property test of
// constraints. The same seed gives the same schemas.

import { between, pick } from './random.js';

const names = ['alpha', 'beta', 'gamma', 'delta', 'one', 'two', 'ключ', 'a b', 'x"y', 'enum', 'pattern', 'type', 'items', 'properties', 'a/b', 'back\\slash', 'const', '名前'];
const words = ['red', 'green', 'blau', 'x"y', 'a b', '', 'ß', '\\', 'tab\t', '</a>', '```', '日本', '1', 'true'];
const patterns = [
  '^[a-c]{1,4}$', '^\\d{3}-\\d{2}$', '^(red|green|blue)$', '^[A-Z][a-z]{0,3}x?$', '^a\\.b$', '^\\w{2,5}$', '^x\\sy$',
  '^"q"$', '^[^a-z]{1,3}$', '^(ab|cd)+$', '^[a-z]+@[a-z]+\\.(com|org)$', '^\\+?[0-9]{1,3}$', '^\\\\n$', '^[äöü]{1,2}$', '^(a|b)?c$',
  '^[\\w.-]{1,4}$', '^#[0-9a-fA-F]{6}$', '^$',
];

const annotated = (random, schema) => random() < 0.2 ? { description: 'What "it" is', title: 'T', default: null, ...schema } : schema;

const leaves = {
  text: () => ({ type: 'string' }),
  string(random) {
    const minLength = between(random, 0, 3);
    return pick(random, [{ type: 'string', minLength }, { type: 'string', maxLength: minLength + 3 }, { type: 'string', minLength, maxLength: minLength + between(random, 0, 5) }]);
  },
  pattern: (random) => ({ type: 'string', pattern: pick(random, patterns) }),
  format: (random) => ({ type: 'string', format: pick(random, ['date', 'time', 'date-time', 'uuid']) }),
  integer(random) {
    const minimum = between(random, -1000, 1000);
    return pick(random, [
      { type: 'integer', minimum, maximum: minimum + between(random, 0, 5000) }, { type: 'integer', minimum }, { type: 'integer', maximum: minimum },
      { type: 'integer', exclusiveMinimum: minimum, exclusiveMaximum: minimum + between(random, 2, 99) }, { type: 'integer' },
    ]);
  },
  number: () => ({ type: 'number' }),
  boolean: () => ({ type: 'boolean' }),
  nothing: () => ({ type: 'null' }),
  choice: (random) => ({ enum: [...new Set([pick(random, words), between(random, -9, 99), null, true, 1.5, pick(random, words)])].slice(0, between(random, 1, 6)) }),
  texts: (random) => ({ type: 'string', enum: [...new Set([pick(random, words), pick(random, words)])] }),
  constant: (random) => ({ const: pick(random, [...words, 7, -0.5, false, null, { a: [1, 'b'] }, ['x', {}]]) }),
  types: (random) => ({ type: pick(random, [['boolean', 'null'], ['string', 'null'], ['integer', 'boolean'], ['string', 'integer']]) }),
};

const nodes = {
  object(random, depth) {
    const properties = {};
    for (let i = between(random, 0, 4); i > 0; i--) properties[pick(random, names)] = node(random, depth - 1);
    const required = Object.keys(properties).filter(() => random() < 0.6);
    const more = pick(random, [{ additionalProperties: false }, { additionalProperties: false }, {}, { additionalProperties: leaves.boolean() }]);
    return { type: 'object', properties, ...(required.length ? { required } : {}), ...more };
  },
  map: (random, depth) => ({ type: 'object', additionalProperties: node(random, depth - 1) }),
  array(random, depth) {
    const minItems = between(random, 0, 2);
    return { type: 'array', items: node(random, depth - 1), ...pick(random, [{}, { minItems }, { maxItems: minItems + 1 }, { minItems, maxItems: minItems + between(random, 0, 2) }]) };
  },
  tuple: (random, depth) => ({ type: 'array', prefixItems: [node(random, depth - 1), node(random, 0)], minItems: 2, maxItems: 2 }),
  anyOf: (random, depth) => ({ anyOf: [node(random, depth - 1), node(random, depth - 1)] }),
  nullable: (random, depth) => ({ anyOf: [node(random, depth - 1), { type: 'null' }] }),
  oneOf: (random) => ({ oneOf: [leaves.boolean(random), leaves.integer(random), pick(random, [leaves.pattern, leaves.string, leaves.texts])(random)] }),
  allOf(random, depth) {
    const part = (name) => ({ type: 'object', properties: { [name]: node(random, depth - 2) }, required: [name] });
    return { allOf: [part('left'), part('right')] };
  },
  reference: (random) => ({ $ref: pick(random, ['#/$defs/point', '#/$defs/tree', '#/definitions/name', '#/$defs/color']) }),
};

function node(random, depth) {
  const kinds = depth > 0 && random() < 0.6 ? nodes : leaves;
  return annotated(random, pick(random, Object.values(kinds))(random, depth));
}

const definitions = {
  $defs: {
    point: { type: 'object', properties: { x: { type: 'integer', minimum: 0, maximum: 9 }, y: { type: 'number' } }, required: ['x', 'y'], additionalProperties: false },
    tree: {
      type: 'object', additionalProperties: false, required: ['leaf'],
      properties: { leaf: { type: 'boolean' }, child: { anyOf: [{ $ref: '#/$defs/tree' }, { type: 'null' }] } },
    },
    color: { enum: ['red', 'green'] },
  },
  definitions: { name: { type: 'string', maxLength: 5 } },
};

// A schema of an object: `depth` levels of others in it.
export function objectSchema(random, depth) {
  return { ...nodes.object(random, depth), ...definitions };
}

// One of anything.
export function anySchema(random, depth) {
  return { ...node(random, depth), ...definitions };
}
