// Small texts that the browser keeps, in memory where it refuses to: `area` is localStorage or sessionStorage.

export function textStorage(area) {
  try {
    window[area].getItem('');
    return window[area];
  } catch {
    const kept = new Map();
    return { getItem: (name) => kept.get(name) ?? null, setItem: (name, text) => kept.set(name, text), removeItem: (name) => kept.delete(name) };
  }
}
