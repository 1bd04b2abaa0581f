/** What `sternpost restore --as-of` does. */
export { holdMailOfCopy } from '../postgresql/postgres-engine.ts'
