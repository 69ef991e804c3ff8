// Waiting for conditions, and numbers that look random but are the same in every run.

import { setTimeout as pause } from 'node:timers/promises';

// How many cases a random test tries: a part of them in `make test`, all in `make thorough`.
export const cases = (all, part) => (process.env.TESTS_THOROUGH ? all : part);

// Polls `condition` until it gives a truthy value, and returns that; fails, naming `what`, when the deadline passes.
export async function until(what, condition, { seconds = 30, every = 10 } = {}) {
  const deadline = performance.now() + seconds * 1000;
  let last;
  for (;;) {
    try {
      const value = await condition();
      if (value) return value;
      last = value;
    } catch (error) {
      last = error;
    }
    if (performance.now() > deadline) {
      throw new Error(`not within ${seconds} s: ${what}`, { cause: last instanceof Error ? last : undefined });
    }
    await pause(every);
  }
}

// The promise's value, or an error naming `what` when the deadline passes first.
export async function within(seconds, what, promise) {
  let timer;
  const late = new Promise((_, reject) => {
    // The condition is the promise; the timer turns one that never settles into a failure.
    timer = setTimeout(() => reject(new Error(`not within ${seconds} s: ${what}`)), seconds * 1000);
  });
  try {
    return await Promise.race([promise, late]);
  } finally {
    clearTimeout(timer);
  }
}

// xorshift32: a small generator with a seed, so that a failing run can be repeated.
export class Random {
  constructor(seed) {
    this.state = seed >>> 0 || 1;
  }

  below(n) {
    let x = this.state;
    x ^= x << 13;
    x ^= x >>> 17;
    x ^= x << 5;
    this.state = x >>> 0;
    return this.state % n;
  }

  between(low, high) {
    return low + this.below(high - low + 1);
  }

  pick(list) {
    return list[this.below(list.length)];
  }
}

// `count` tokens of the small vocabulary's ordinary text tokens, none of them special.
export function tokens(count, seed) {
  const random = new Random(seed * 2654435761);
  return Array.from({ length: count }, () => random.between(20, 1000));
}
