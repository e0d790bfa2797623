/** What can go wrong on this side of the wire; what the server refuses is in `../errors.ts`. */

import { ClientError } from "../errors.js";

/** This use may not go ahead unasked, and the server could not be asked. */
export class QuotaUnavailable extends ClientError {
  /** Seconds after which it is worth while to try again, where the server said so. */
  readonly retryAfter: number | undefined;

  constructor(message: string, options: ErrorOptions & { retryAfter?: number | undefined } = {}) {
    super("quota_unavailable", message, options);
    this.retryAfter = options.retryAfter;
  }
}

/** The outbox cannot be used: no room, no permission, damaged, or locked for too long. */
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
