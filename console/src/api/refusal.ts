// Whether what failed is asked for again.

/**
 * A request that is refused (4xx) stays wrong, and is not repeated. One that was answered before is right: what was
 * refused is the moment, such as a query that took too long on a busy machine; unless it is gone, or not this user's any
 * more.
 */
export const asksAgain = (status: number, wasAnswered: boolean): boolean =>
  (wasAnswered && status !== 403 && status !== 404) || status < 400 || status >= 500 || status === 429;
