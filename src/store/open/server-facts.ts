/** Of the server that holds the data. */
export { findPostgresFacts as postgresFacts } from '../postgresql/server-facts.ts'
export type { PostgresFacts } from '../postgresql/server-facts.ts'
