// Files whose text goes with a message: for every model, since they stand in the message itself.

const MOST_BYTES = 4 * 1024 * 1024;

// Of what holds text and is none, and what to do about it.
const others = [
  [/\.pdf$|^application\/pdf$/i, 'a PDF document'],
  [/\.(docx?|odt|rtf|pages)$/i, 'a document of a word processor'],
  [/\.(xlsx?|ods|numbers)$/i, 'a spreadsheet'],
  [/\.(pptx?|odp)$/i, 'a presentation'],
];
const kindOf = ({ name, type }) => others.find(([pattern]) => pattern.test(name) || pattern.test(type))?.[1];

// Whether a file is text by its name, though browsers take it for a film or a piece of music.
export const isTextByName = (name) => /\.(ts|tsx|mts|cts|m3u8?|pls)$/i.test(name);

// The text of a file. Throws why it has none.
export async function readText(file) {
  const kind = kindOf(file);
  if (kind) throw new Error(`it is ${kind}, which this server cannot read. Save it as text, or copy its text into the message.`);
  if (file.size > MOST_BYTES) throw new Error('it is larger than 4 MiB.');
  const bytes = new Uint8Array(await file.arrayBuffer());
  const encoding = bytes[0] === 0xff && bytes[1] === 0xfe ? 'utf-16le' : bytes[0] === 0xfe && bytes[1] === 0xff ? 'utf-16be' : 'utf-8';
  try {
    const text = new TextDecoder(encoding, { fatal: true }).decode(bytes);
    if (text.includes('\0')) throw new TypeError();
    return text.replace(/\r\n?/g, '\n');
  } catch {
    throw new Error('it is no text in UTF-8.');
  }
}

const languages = { c: 'c', h: 'c', cpp: 'cpp', hpp: 'cpp', cc: 'cpp', py: 'python', js: 'javascript', mjs: 'javascript', ts: 'typescript', rs: 'rust', rb: 'ruby', sh: 'bash', md: 'markdown', yml: 'yaml' };
const languageOf = (name) => {
  const end = /\.(\w{1,10})$/.exec(name)?.[1].toLowerCase() ?? '';
  return languages[end] ?? (end === 'txt' ? '' : end);
};

// As it stands in a message: a block of code that nothing in the text ends.
export function quoted({ name, data }) {
  let longest = 2;
  for (const [marks] of data.matchAll(/`{3,}/g)) longest = Math.max(longest, marks.length);
  const fence = '`'.repeat(longest + 1);
  return `${name}:\n${fence}${languageOf(name)}\n${data}${data.endsWith('\n') ? '' : '\n'}${fence}`;
}
