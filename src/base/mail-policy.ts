/** Content-Security-Policy of a mail that somebody looks at: it is shown, and does nothing more. */

/** No scripts, no forms, no origin, nothing from elsewhere. */
const POLICY = "sandbox; default-src 'none'; img-src data:; style-src 'unsafe-inline'; frame-ancestors 'self'"
/** The same, with the images that the mail asks for from elsewhere. */
const WITH_IMAGES = POLICY.replace('data:', 'data: https: http:')

export const mailPolicy = (hasImages: boolean): string => (hasImages ? WITH_IMAGES : POLICY)
