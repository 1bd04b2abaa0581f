/** Where a message that is `sending` is: in which part of delivery, on which road, at which stage. Types only. */
export type Whereabouts =
  | { kind: 'placing' } // its hosts are looked up, and its IP is chosen
  | { kind: 'path'; from: string; to: string } // it waits for room on its path
  | { kind: 'thread'; thread: number; from: string; to: string; place: ThreadPlace | null } // null: it is silent
  | { kind: 'recording'; milliseconds: number } // what became of it is written into the store, for so long already
  | { kind: 'elsewhere'; node: string } // another node has it, and alone knows more

/** Inside a delivery thread. */
export interface ThreadPlace {
  stage: ThreadStage
  /** So long already. */
  milliseconds: number
  /** Of its connection, also while that is opened; null: it has none. */
  host: string | null
  address: string | null
}

export type ThreadStage =
  | 'queue' // it waits for a connection
  | 'connect' // the connection is opened, up to the answer to EHLO
  | 'render' // its content is read and signed
  | 'turn' // it waits behind another message of its connection
  | 'mail'
  | 'rcpt'
  | 'data' // the answer to this command is waited for
  | 'body' // a piece of its content leaves
  | 'mark' // its final dot waits for the store
  | 'dot' // the answer to the final dot is waited for
