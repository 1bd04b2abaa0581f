/** Text that becomes a part of a page or a mail. */
export const HTML_ENTITIES: Readonly<Record<string, string>> = {
  '&': '&amp;',
  '<': '&lt;',
  '>': '&gt;',
  '"': '&quot;',
  "'": '&#39;',
}

export function escapeHtml(text: string): string {
  // The five characters that can end a text or an attribute value in HTML.
  return text.replace(/[&<>"']/g, (character) => HTML_ENTITIES[character] ?? character)
}
