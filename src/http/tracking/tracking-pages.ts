/** The few pages that a reader of a mail may see: plain html without scripts, styles or cookies. */
import { escapeHtml } from '../../base/escape-html.ts'

export interface Page {
  status: number
  html: string
}

/** Nothing is loaded and nobody may frame it; the form leads back to where it stands. */
export const PAGE_POLICY = "default-src 'none'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

export const UNKNOWN_LINK = page(404, 'This link is not known', '<p>It may have been changed on its way here.</p>')

export const GONE_LINK = page(410, 'This link has expired', '<p>Where it led is not kept any more.</p>')

export const UNKNOWN_UNSUBSCRIBE = page(
  404,
  'This link is not known',
  '<p>It may have been changed on its way here, or the mail is too old.</p>',
)

export const METHOD_NOT_ALLOWED = page(405, 'This is not possible here', '')

export const UNSUBSCRIBE_FORM = page(
  200,
  'Unsubscribe',
  `<p>Do you want no more mail of this kind?</p>
<form method="post"><input type="hidden" name="List-Unsubscribe" value="One-Click"><button>Unsubscribe</button></form>`,
)

export const INCOMPLETE_FORM = page(400, 'Nothing was changed', '<p>The form did not arrive as a whole.</p>')

export const UNSUBSCRIBED = page(200, 'You are unsubscribed', '<p>You will get no more mail of this kind.</p>')

/** `abuseAddress`: from the configuration, or null. */
export function aboutPage(abuseAddress: string | null): Page {
  const contact = abuseAddress === null ? '' : `\n<p>Report abuse to ${escapeHtml(abuseAddress)}.</p>`
  return page(
    200,
    'Mail server',
    `<p>This host belongs to a mail server. Links in mail that was sent by it lead through here.</p>${contact}`,
  )
}

/** Texts of this file only, but for `escape`d ones. */
function page(status: number, title: string, content: string): Page {
  const html = `<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>${title}</title></head>
<body>
<h1>${title}</h1>
${content}
</body>
</html>
`
  return { status, html }
}
