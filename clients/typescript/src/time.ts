/** Clocks and pauses, in seconds. */

/** Return seconds by a clock that nobody can set. */
export function monotonic(): number {
  return performance.now() / 1000;
}

/**
 * Resolve after so many seconds; reject with the signal's reason if the signal is aborted meanwhile.
 *
 * @param options.background Whether the process may end meanwhile.
 */
export function sleep(
  seconds: number,
  { signal, background = false }: { signal?: AbortSignal | undefined; background?: boolean } = {},
): Promise<void> {
  return new Promise((resolve, reject) => {
    if (signal?.aborted) return reject(signal.reason);
    const aborted = (): void => {
      clearTimeout(timer);
      reject(signal?.reason);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", aborted);
      resolve();
    }, Math.max(0, seconds) * 1000);
    if (background) letEnd(timer);
    signal?.addEventListener("abort", aborted, { once: true });
  });
}

/** Let the process end although this timer runs, in runtimes whose timers keep processes alive. */
export function letEnd(timer: unknown): void {
  (timer as { unref?: () => void }).unref?.();
}
