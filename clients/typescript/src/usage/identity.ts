/** Reads which user a token is for, as the server will read it. */

import { BadConfiguration } from "../errors.js";
import { isObject } from "../transport.js";

const KEY_PREFIX = "qo_";
const CANONICAL_UUID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i;
const ANY_UUID = /^[0-9a-f]{8}-?([0-9a-f]{4}-?){3}[0-9a-f]{12}$/i;
const NAMESPACE_URL = "6ba7b8119dad11d180b400c04fd430c8";

/** Whether a token is a producer's key, which may act for every user of its project, and not an end user's JWT. */
export function isKey(token: string): boolean {
  return token.startsWith(KEY_PREFIX) || !token.includes(".");
}

/** @throws BadConfiguration */
export function uuidOf(given: string): string {
  if (!ANY_UUID.test(given)) throw new BadConfiguration(`'${given}' is no UUID.`);
  return dashed(given.replaceAll("-", "").toLowerCase());
}

/**
 * Return the user that a JWT is for: its `sub`, or, if that is no UUID, the UUID that the server derives from it.
 *
 * Only the server checks the signature; here the user only names the rows of the outbox.
 *
 * @throws BadConfiguration: the token is no JWT, or has no `sub`.
 */
export async function userOf(token: string): Promise<string> {
  const claims = claimsOf(token);
  if (!isObject(claims) || claims["sub"] === undefined) {
    throw new BadConfiguration("The token names no user; give userId.");
  }
  const subject = String(claims["sub"]);
  return CANONICAL_UUID.test(subject) ? subject.toLowerCase() : await uuid5(`${claims["iss"] ?? ""} ${subject}`);
}

function claimsOf(token: string): unknown {
  try {
    const text = atob((token.split(".")[1] ?? "").replaceAll("-", "+").replaceAll("_", "/"));
    return JSON.parse(new TextDecoder().decode(Uint8Array.from(text, (letter) => letter.charCodeAt(0))));
  } catch {
    return undefined;
  }
}

async function uuid5(name: string): Promise<string> {
  const space = Uint8Array.from(NAMESPACE_URL.match(/../g)!, (byte) => Number.parseInt(byte, 16));
  const text = new TextEncoder().encode(name);
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-1", Uint8Array.of(...space, ...text))).slice(0, 16);
  digest[6] = (digest[6]! & 0x0f) | 0x50;
  digest[8] = (digest[8]! & 0x3f) | 0x80;
  return dashed(Array.from(digest, (byte) => byte.toString(16).padStart(2, "0")).join(""));
}

function dashed(hex: string): string {
  return hex.replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, "$1-$2-$3-$4-$5");
}
