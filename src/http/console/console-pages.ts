/** The pages of the console that are no application: logging in, and the shell that loads the rest. No scripts inside. */
import { escapeHtml } from '../../base/escape-html.ts'

/** Of every page here: only what this server sends, and no frame around it. */
export const CONSOLE_POLICY = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self'",
  "img-src 'self' data:",
  "connect-src 'self'",
  "frame-src 'self'",
  "base-uri 'none'",
  "form-action 'self'",
  "frame-ancestors 'none'",
].join('; ')

interface ShellAssets {
  /** Paths. */
  script: string
  style: string
  /** Modules that the first screen needs, so that the browser asks for all of them at once. */
  preloads: readonly string[]
}

export function shellPage({ script, style, preloads }: ShellAssets): string {
  const links = preloads.map((path) => `<link rel="modulepreload" href="${path}">`).join('\n')
  return page({
    title: 'Sternpost',
    head: `<link rel="stylesheet" href="${style}">\n${links}\n<script type="module" src="${script}"></script>`,
    body: '<div id="console"><p class="lone">Loading …</p></div>\n<noscript>The console needs JavaScript.</noscript>',
  })
}

/** One button: whoever only looks at the link, such as a scanner of mails, does not use it up. */
export function linkPage(style: string): string {
  return loginPage({
    style,
    problem: null,
    content: `<p>This link logs in once, in this browser.</p>
<form method="post"><button class="main">Log in</button></form>`,
  })
}

/** `problem`: a sentence about what was tried, or null. */
export function entrancePage({ style, script }: Pick<ShellAssets, 'style' | 'script'>, problem: string | null): string {
  return loginPage({
    style,
    script,
    problem,
    content: `<p id="passkey" hidden><button type="button">Log in with a passkey</button></p>
<p>On the server, <code>sternpost console open</code> prints a link that logs in.</p>
<form method="post" action="/console/login">
<label for="key">Or with an API key, for what the key may see</label>
<input id="key" name="key" type="password" autocomplete="off" required maxlength="100">
<button class="main">Log in</button>
</form>`,
  })
}

interface ShownRecord {
  purpose: string
  required: boolean
  type: string
  name: string
  value: string
  status: string
  found: readonly string[]
  error: string | null
}

/** The DNS records of one domain, for whoever publishes them: nothing else, and no script. */
export function recordsPage(style: string, domain: string, records: readonly ShownRecord[]): string {
  const rows = records.map(({ purpose, required, type, name, value, status, found, error }) => {
    const seen = found.length === 0 ? (error ?? 'nothing') : found.join(' ')
    const cells = [`${status}${required ? '' : ' (advised)'}`, purpose.replace('_', ' '), type, name, value, seen]
    return `<tr>${cells.map((cell) => `<td>${escapeHtml(cell)}</td>`).join('')}</tr>`
  })
  const heads = ['State', 'For', 'Type', 'Name', 'Value', 'Found'].map((head) => `<th scope="col">${head}</th>`)
  const right = records.filter(({ status }) => status === 'verified').length
  return page({
    title: `DNS records of ${escapeHtml(domain)}`,
    head: `<link rel="stylesheet" href="${style}">`,
    body: `<main>
<h1>DNS records of ${escapeHtml(domain)}</h1>
<p>Please publish these records. ${right} of ${records.length} are right. Load the page again to see what was found since.</p>
<div class="scroll" tabindex="0"><table><caption>DNS records</caption>
<thead><tr>${heads.join('')}</tr></thead>
<tbody>
${rows.join('\n')}
</tbody></table></div>
</main>`,
  })
}

interface LoginPage {
  style: string
  /** Left out: none. */
  script?: string
  problem: string | null
  content: string
}

function loginPage({ style, script, problem, content }: LoginPage): string {
  const told = problem === null ? '' : `<p class="problem" role="alert">${problem}</p>\n`
  return page({
    title: 'Log in · Sternpost',
    head: `<link rel="stylesheet" href="${style}">${script === undefined ? '' : `\n<script type="module" src="${script}"></script>`}`,
    body: `<main class="lone">\n<h1>Sternpost</h1>\n${told}${content}\n</main>`,
  })
}

/** Texts of this file, paths of our own, and what was escaped. */
function page({ title, head, body }: { title: string; head: string; body: string }): string {
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<link rel="icon" href="data:,">
<title>${title}</title>
${head}
</head>
<body>
${body}
</body>
</html>
`
}
