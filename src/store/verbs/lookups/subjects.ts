/**
 * Words of subjects, to find messages by. Contents are added behind their acceptance, in slices, in the order of their
 * numbers: each once, also when the server is killed.
 */
import type { Database } from '../../engine/database.ts'
import { oneColumn } from '../tools/statements.ts'
import type { SomeVerbs } from '../tools/verb-types.ts'

// A longer run goes in pieces, the same in what is asked: an entry of PostgreSQL's index has its limit. What was added
// to SQLite's before this rule is whole, and found by the other words of its subject alone.
const WORD = /[\p{L}\p{N}]{1,64}/gu

export function createSubjectWrites(database: Database) {
  const findIndexed = oneColumn(database)<[], number>(`select value from meta where name = 'indexed_content'`)
  const noteIndexed = database.prepare<[number]>(`
    insert into meta (name, value) values ('indexed_content', ?) on conflict (name) do update set value = excluded.value`)
  const findNext = database.prepare<[number, number], { contentId: number; subject: string }>(`
    select content_id as contentId, subject from contents where content_id > ? order by content_id limit ?`)
  const add = database.prepare<[number, string]>('insert into subjects (rowid, subject) values (?, ?)')
  return {
    indexSubjects(limit) {
      const contents = findNext.all(findIndexed.get() ?? 0, limit)
      for (const { contentId, subject } of contents) add.run(contentId, wordsOf(subject).join(' '))
      const last = contents.at(-1)
      if (last !== undefined) noteIndexed.run(last.contentId)
      return contents.length === limit
    },
  } satisfies SomeVerbs
}

/**
 * What is asked of the index: every word. Without a word, nothing is found. Beginnings of words are not asked for: the
 * index would gather all that begin so before it answers, which takes 50 ms at a million.
 */
export function subjectMatch(subject: string): string {
  const words = wordsOf(subject).map((word) => `"${word}"`)
  return words.length === 0 ? '""' : words.join(' ')
}

/** In lower case and without accents: one who asks may leave them out. */
function wordsOf(subject: string): string[] {
  return subject.normalize('NFKD').replace(/\p{M}/gu, '').toLowerCase().match(WORD) ?? []
}

/** Takes the subject of a content out of the index. */
export function createSubjectRemoval(database: Database): (contentId: number) => void {
  const remove = database.prepare<[number]>('delete from subjects where rowid = ?')
  return (contentId) => {
    remove.run(contentId)
  }
}
