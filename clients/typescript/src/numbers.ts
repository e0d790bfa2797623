/**
 * JSON with whole numbers that are too large for JavaScript's numbers, such as other systems' ids in results and
 * payloads.
 */

// A character that no text from the server holds: it refuses NUL characters.
const MARK = "\u0000";
const MARKED = /"\\u0000(-?\d+)"/g;
const LONG = /[\d]{16}/;
// The pattern matches no whole text: repeating it for each character would overflow the stack at some megabytes.
const TOKENS = /\\.|"|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/g;

/**
 * Read JSON as JSON.parse does, but a whole number beyond Number.MAX_SAFE_INTEGER as a BigInt: otherwise its digits
 * would change.
 *
 * @throws SyntaxError
 */
export function parseJSON(text: string): unknown {
  if (!LONG.test(text)) return JSON.parse(text);
  let marked = false;
  let inText = false;
  const kept = text.replace(TOKENS, (token) => {
    if (token === '"') inText = !inText;
    if (inText || !/^-?\d+$/.test(token) || Number.isSafeInteger(Number(token))) return token;
    marked = true;
    return `"\\u0000${token}"`;
  });
  if (!marked) return JSON.parse(text);
  return JSON.parse(kept, (_, value: unknown) =>
    typeof value === "string" && value.startsWith(MARK) ? BigInt(value.slice(MARK.length)) : value,
  );
}

/**
 * Write JSON as JSON.stringify does, and a BigInt as the number that it is.
 *
 * @throws TypeError
 */
export function writeJSON(value: unknown, replacer?: (this: Record<string, unknown>, name: string, value: unknown) => unknown): string {
  let marked = false;
  const text = JSON.stringify(value, function (this: Record<string, unknown>, name: string, given: unknown) {
    const found = replacer === undefined ? given : replacer.call(this, name, given);
    if (typeof found !== "bigint") return found;
    marked = true;
    return `${MARK}${found}`;
  });
  return marked ? text.replace(MARKED, "$1") : text;
}
