/** Chooses the engine: the one place to extend when another one comes. */
export { openSqliteContentReader as openContentReader } from '../sqlite/sqlite-content-reader.ts'
export { openSqliteStore as openStore } from '../sqlite/sqlite-store.ts'
