/**
 * The answer of a verb that is read after the commit, so that the verb itself need not wait for what the database says.
 * Where the commit happened and what the database said was lost with its connection, reading throws.
 */
export class LateAnswer {
  readonly read: () => unknown

  constructor(read: () => unknown) {
    this.read = read
  }
}

/** What a verb returns as its answer. */
export const afterCommit = <Answer>(read: () => Answer): Answer => new LateAnswer(read) as unknown as Answer
