/** Ids that this client makes: keys of requests, ids of events and outboxes. */

/** A random UUID. `crypto.randomUUID` is missing in pages that came by plain http from another host. */
export function newId(): string {
  if (typeof crypto.randomUUID === "function") return crypto.randomUUID();
  const hex = Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0"));
  const text = hex.join("");
  const variant = "89ab"[Number.parseInt(text.charAt(16), 16) % 4];
  return `${text.slice(0, 8)}-${text.slice(8, 12)}-4${text.slice(13, 16)}-${variant}${text.slice(17, 20)}-${text.slice(20)}`;
}
