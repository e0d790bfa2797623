/** Errors of the client's own; the server's refusals are in `../errors.ts`. */

import { ClientError } from "../errors.js";

/** This use may not begin without asking the server, and the server did not answer. */
export class QuotaUnavailable extends ClientError {
  /** Seconds after which to try again, if the server stated them. */
  readonly retryAfter: number | undefined;

  constructor(message: string, options: ErrorOptions & { retryAfter?: number | undefined } = {}) {
    super("quota_unavailable", message, options);
    this.retryAfter = options.retryAfter;
  }
}

/** The outbox's store cannot be used: no room, no permission, damaged, or locked for too long. */
export class OutboxFailed extends ClientError {
  constructor(message: string, options?: ErrorOptions, code = "outbox_failed") {
    super(code, message, options);
  }
}

/** The outbox holds as many rows as it may. The use was refused before its call; nothing is dropped. */
export class OutboxFull extends OutboxFailed {
  constructor(message: string) {
    super(message, undefined, "outbox_full");
  }
}

/** The tracker was closed. Uses that had begun are still written down. */
export class TrackerClosed extends ClientError {
  constructor() {
    super("tracker_closed", "The tracker was closed.");
  }
}
