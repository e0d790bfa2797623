/** One websocket to the server: open, hear, say, close. */

import { parseJSON } from "./numbers.js";
import { isObject } from "./transport.js";

const PROTOCOL = "queueops.v1";
const OPEN = 1;

export type Message = Record<string, any>;

/** The socket could not be opened, or was closed. `refused`: the server refused a socket. */
export class LineLost extends Error {
  constructor(
    message: string,
    readonly refused = false,
  ) {
    super(message);
  }
}

export class Line {
  readonly #Socket: typeof WebSocket;
  #socket: WebSocket | undefined;
  #heard: Message[] = [];
  #lost: LineLost | undefined;
  #wake: () => void = () => {};

  constructor(Socket: typeof WebSocket) {
    this.#Socket = Socket;
  }

  /** @throws LineLost */
  async open(url: string, seconds: number): Promise<void> {
    this.#heard = [];
    this.#lost = undefined;
    const socket = new this.#Socket(url, PROTOCOL);
    this.#socket = socket;
    socket.onopen = (): void => this.#wake();
    socket.onmessage = ({ data }): void => this.#take(String(data));
    socket.onerror = (): void => this.lose("The socket failed.");
    socket.onclose = ({ code, reason }): void => this.lose(`The socket was closed (${code} ${reason}).`);
    await this.#until(seconds, () => socket.readyState === OPEN);
    this.#check();
    if (socket.readyState !== OPEN) throw new LineLost("The socket did not open in time.");
  }

  /**
   * Return the next message; undefined: no message came for so long.
   *
   * @throws LineLost
   */
  async hear(seconds: number): Promise<Message | undefined> {
    await this.#until(seconds, () => this.#heard.length > 0);
    const message = this.#heard.shift();
    if (message === undefined) this.#check();
    return message;
  }

  /** @throws LineLost */
  say(message: Message): void {
    this.#check();
    this.#socket?.send(JSON.stringify(message));
  }

  /** Treat the socket as lost. */
  lose(message: string, refused = false): void {
    this.#lost ??= new LineLost(message, refused);
    this.#wake();
  }

  close(): void {
    const socket = this.#socket;
    this.#socket = undefined;
    if (socket === undefined) return;
    socket.onopen = socket.onmessage = socket.onclose = null;
    socket.onerror = (): void => {}; // closing a socket before it is open raises an error event
    socket.close();
  }

  #take(text: string): void {
    try {
      const message = parseJSON(text);
      if (!isObject(message)) throw new TypeError();
      this.#heard.push(message);
      this.#wake();
    } catch {
      this.lose("What answers is not QueueOps.", true);
    }
  }

  #check(): void {
    if (this.#lost !== undefined) throw this.#lost;
  }

  async #until(seconds: number, isMet: () => boolean): Promise<void> {
    if (isMet() || this.#lost !== undefined) return;
    await new Promise<void>((resolve) => {
      const timer = setTimeout(resolve, seconds * 1000);
      this.#wake = (): void => {
        if (!isMet() && this.#lost === undefined) return;
        clearTimeout(timer);
        resolve();
      };
    });
    this.#wake = (): void => {};
  }
}
