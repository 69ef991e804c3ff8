// Long lists of cases, of which a run plays a part.

// Whether the i-th of a long list is played: of those `make test` plays a quarter, another one with another commit
// (TESTS_QUARTER, 0 to 3), and `make thorough` all.
export const isInPart = (i) => Boolean(process.env.TESTS_THOROUGH) || i % 4 === Number(process.env.TESTS_QUARTER ?? 0) % 4;
