/** HTTP by `fetch`: one request, its answer, and its repeats. */

import { ApiError, BadConfiguration, type Details, errorType, type Fields, Unreachable } from "./errors.js";
import { parseJSON, writeJSON } from "./numbers.js";
import { Retry } from "./retry.js";
import { monotonic, sleep } from "./time.js";

export const DEFAULT_TIMEOUT_SECONDS = 30;
const API_ROOT = "/api/v1";
const SAFE_METHODS = new Set(["GET", "HEAD", "OPTIONS"]);
const SHOWN_CHARACTERS = 200; // of an answer that did not come from QueueOps
const HEADER_TEXT = /^[\x20-\x7e]*$/;
/** The codes by which runtimes report that a connection was never made. */
const NEVER_SENT = new Set([
  "ECONNREFUSED",
  "EHOSTUNREACH",
  "ENETUNREACH",
  "ENOTFOUND",
  "EAI_AGAIN",
  "ConnectionRefused",
  "UND_ERR_CONNECT_TIMEOUT",
]);

/** A key or a token, or a function that returns one, which is called before each attempt. */
export type Token = string | (() => string | Promise<string>);

export interface Answer {
  status: number;
  /** The parsed JSON; null without a body. */
  body: any;
  headers: Headers;
}

export interface RequestOptions {
  /** The body as a value, to be sent as JSON. */
  json?: unknown;
  /** The body as it is, instead of `json`; with a content-type among the headers. */
  content?: string | Blob;
  /** The query's parameters. Values that are null or undefined are left out; lists are joined by commas. */
  params?: Record<string, unknown>;
  headers?: Record<string, string>;
  /** Seconds to wait for the next byte; by default the transport's. */
  timeout?: number | undefined;
  /**
   * Whether carrying the request out twice has the effect of once. By default true for a request that reads, or has an
   * Idempotency-Key.
   */
  isSafe?: boolean;
  /** Used instead of the transport's. */
  retry?: Retry;
  /** Aborts the request. */
  signal?: AbortSignal | undefined;
}

export interface TransportOptions {
  /** Seconds to wait for the next byte, not for a request as a whole. */
  timeout?: number;
  retry?: Retry;
  fetch?: typeof fetch;
  /** Aborts all that the client does, with the signal's reason. Where a call has a signal of its own, that one counts. */
  signal?: AbortSignal | undefined;
}

export class Transport {
  readonly baseUrl: string;
  readonly retry: Retry;
  readonly #token: Token;
  readonly #timeout: number;
  readonly #fetch: typeof fetch;
  readonly signal: AbortSignal | undefined;

  /** @param baseUrl The installation's address, such as `https://queue.example.org`. */
  constructor(baseUrl: string, token: Token, options: TransportOptions = {}) {
    this.baseUrl = baseUrlOf(baseUrl);
    this.retry = options.retry ?? new Retry();
    this.#token = token;
    this.#timeout = options.timeout ?? DEFAULT_TIMEOUT_SECONDS;
    this.signal = options.signal;
    this.#fetch = options.fetch ?? ((...given) => fetch(...given));
  }

  /**
   * Send a request, and repeat it where that is safe and may help.
   *
   * @param path Below the installation's address: `/api/v1/jobs/`.
   * @throws ApiError, Unreachable: the last attempt's error, with the request's idempotency key.
   */
  async request(method: string, path: string, given: RequestOptions = {}): Promise<Answer> {
    const options = { ...given, signal: given.signal ?? this.signal };
    const key = options.headers?.["idempotency-key"];
    const isSafe = options.isSafe ?? (SAFE_METHODS.has(method) || key !== undefined);
    const retry = options.retry ?? this.retry;
    const began = monotonic();
    for (let repeat = 1; ; repeat++) {
      try {
        return await this.#attempt(method, path, options);
      } catch (error) {
        if (!(error instanceof ApiError || error instanceof Unreachable)) throw error;
        if (error instanceof Unreachable) error.idempotencyKey = key;
        const pause = retry.pauseSeconds(error, { repeat, elapsed: monotonic() - began, isSafe });
        if (pause === undefined) throw error;
        retry.told?.(error, repeat);
        await sleep(pause, { signal: options.signal });
      }
    }
  }

  async token(): Promise<string> {
    return typeof this.#token === "function" ? await this.#token() : this.#token;
  }

  async #attempt(method: string, path: string, options: RequestOptions): Promise<Answer> {
    const address = `${this.baseUrl}${path}`;
    const headers = await this.#headers(options);
    const body = options.json === undefined ? options.content : writeJSON(options.json);
    const timer = new Silence(options.timeout ?? this.#timeout, options.signal);
    try {
      const response = await this.#fetch(address + queryOf(options.params ?? {}), {
        method,
        headers,
        redirect: "manual",
        credentials: "omit",
        cache: "no-store",
        signal: timer.signal,
        ...(body === undefined ? {} : { body }),
      });
      return answerOf(response, await textOf(response, timer));
    } catch (error) {
      if (error instanceof ApiError) throw error;
      options.signal?.throwIfAborted();
      throw unreachable(address, timer.isOver ? `no byte for ${timer.seconds} s` : error, error);
    } finally {
      timer.stop();
    }
  }

  async #headers(options: RequestOptions): Promise<Record<string, string>> {
    const token = await this.token();
    if (!HEADER_TEXT.test(token)) {
      // The key itself is not shown, because messages get into logs.
      throw new BadConfiguration("The key or token holds characters that no header can carry.");
    }
    return {
      // A page cannot set this header, and another origin would have to allow it.
      ...("process" in globalThis ? { "user-agent": "queueops-client" } : {}),
      ...(options.json === undefined ? {} : { "content-type": "application/json" }),
      ...options.headers,
      ...(token ? { authorization: `Bearer ${token}` } : {}),
    };
  }
}

/** Aborts a request after so many seconds without a byte. */
class Silence {
  isOver = false;
  readonly #abort = new AbortController();
  #timer: ReturnType<typeof setTimeout> | undefined;

  constructor(
    readonly seconds: number,
    readonly outer: AbortSignal | undefined,
  ) {
    outer?.addEventListener("abort", this.#end, { once: true });
    if (outer?.aborted) this.#end();
    this.begin();
  }

  get signal(): AbortSignal {
    return this.#abort.signal;
  }

  begin(): void {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => {
      this.isOver = true;
      this.#abort.abort();
    }, this.seconds * 1000);
  }

  stop(): void {
    clearTimeout(this.#timer);
    this.outer?.removeEventListener("abort", this.#end);
  }

  #end = (): void => this.#abort.abort(this.outer?.reason);
}

/**
 * Return the installation's address without the API's path and without a slash at its end.
 *
 * @throws BadConfiguration
 */
export function baseUrlOf(given: string): string {
  let url: URL;
  try {
    url = new URL(given.trim());
  } catch {
    throw new BadConfiguration(`'${given}' is not an address.`);
  }
  if (!["http:", "https:"].includes(url.protocol) || !url.hostname) {
    throw new BadConfiguration(`'${given}' is not an address; give one such as https://queue.example.org.`);
  }
  if (url.username || url.password || url.search || url.hash) {
    throw new BadConfiguration("The address may have no user, query or fragment.");
  }
  const path = url.pathname.replace(/\/+$/, "");
  return url.origin + (path.endsWith(API_ROOT) ? path.slice(0, -API_ROOT.length) : path).replace(/\/+$/, "");
}

function answerOf(response: Response, text: string): Answer {
  const { isJson, body } = parsed(text);
  if (response.ok && isJson) return { status: response.status, body, headers: response.headers };
  let error = isObject(body) ? body["error"] : undefined;
  if (!isObject(error) || typeof error["code"] !== "string") {
    error = { code: `http_${response.status}`, message: notOurs(response, text) };
  }
  const { code, message, fields, details } = error as { code: string; message?: unknown; fields?: Fields; details?: Details };
  throw new (errorType(code, response.status))(code, String(message || code), {
    status: response.status,
    fields,
    details,
    retryAfter: retryAfterOf(response.headers),
  });
}

/** Return the seconds to wait by the Retry-After header, a number or a date; undefined: there is no readable one. */
export function retryAfterOf(headers: Headers): number | undefined {
  const text = headers.get("retry-after")?.trim();
  if (!text) return undefined;
  const seconds = /^[+-]?[\d.]+$/.test(text) ? Number(text) : (Date.parse(text) - Date.now()) / 1000;
  return Number.isFinite(seconds) ? Math.max(0, seconds) : undefined;
}

async function textOf(response: Response, timer: Silence): Promise<string> {
  if (response.body === null) return "";
  const decoder = new TextDecoder();
  const reader = response.body.getReader();
  let text = "";
  for (;;) {
    timer.begin();
    const { done, value } = await reader.read();
    if (done) return text + decoder.decode();
    text += decoder.decode(value, { stream: true });
  }
}

function parsed(text: string): { isJson: boolean; body: unknown } {
  if (!text) return { isJson: true, body: null };
  try {
    return { isJson: true, body: parseJSON(text) };
  } catch {
    return { isJson: false, body: null };
  }
}

function notOurs(response: Response, text: string): string {
  const location = response.headers.get("location");
  if (location) return `The address redirects to ${location}; name that one.`;
  const kind = response.headers.get("content-type") ?? "no type";
  const shown = text.split(/\s+/).join(" ").trim().slice(0, SHOWN_CHARACTERS);
  return `This is not an answer of QueueOps (status ${response.status}, ${kind}): ${shown}`;
}

function unreachable(address: string, shown: unknown, error: unknown): Unreachable {
  const cause = (error as { cause?: unknown }).cause;
  const code = (cause as { code?: unknown })?.code ?? (error as { code?: unknown }).code;
  const words = typeof shown === "string" ? shown : inWords(cause ?? error);
  return new Unreachable(`${address}: ${words}`, { cause: error, mayHaveArrived: !NEVER_SENT.has(String(code)) });
}

function inWords(error: unknown): string {
  const { message, code, name } = error as { message?: string; code?: string; name?: string };
  return message || code || name || String(error);
}

function queryOf(params: Record<string, unknown>): string {
  const given = Object.entries(params).filter(([, value]) => value !== undefined && value !== null);
  const query = new URLSearchParams(given.map(([name, value]) => [name, asText(value)])).toString();
  return query && `?${query}`;
}

function asText(value: unknown): string {
  return Array.isArray(value) ? value.map(String).join(",") : String(value);
}

export function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
