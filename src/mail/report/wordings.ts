/**
 * Wordings by which reports are told from other mail, and failed addresses from others: data, no logic. Each list
 * collects what many servers write, in the languages they write it in. All are matched against single lines, subjects
 * and texts of bounded length; none repeats a repetition, so that no text makes them slow.
 */

/** Matches what any of the expressions matches, capitals or not; in a frame where `$$` stands for them. */
export function anyOf(expressions: readonly RegExp[], frame = '$$'): RegExp {
  return new RegExp(
    frame.replace('$$', () => expressions.map(({ source }) => source).join('|')),
    'i',
  )
}

/** Subjects of bounces and warnings. */
export const BOUNCE_SUBJECT = anyOf([
  /undeliver|un-deliver|not deliver|non[- ]?delivery|bounce|processing error|error sending your mail|loop alert/,
  /deliver(?:y|ed)? (?:has )?(?:fail|status|problem|error|delay|notification|unsuccessful)/,
  /(?:mail|message) (?:delivery|status|failure|system|could not|has not|delayed)/,
  /(?:fail(?:ure|ed)?|error|failing)(?: in)?:? (?:notice|notification|deliver|mail|message|to deliver|sending)/,
  /mail fail|failure delivery|return(?:ed|ing) (?:mail|e-?mail|message|to sender)/,
  /warning[:-].{0,200}(?:message|mail|user)|could ?n(?:o|')t (?:be )?(?:deliver|send|sent)|are not member/,
  /your message to .{0,200} could not/,
  /unzustellbar|nicht zugestellt|r[uü]ckl[aä]ufer|zustell(?:ung|fehler)/, // German
  /non (?:remis|distribu|d[eé]livr)|[eé]chec (?:de )?(?:la )?(?:remise|distribution|livraison|d.envoi)/, // French
  /mancata consegna|non (?:recapitat|consegnat)/, // Italian
  /no (?:se )?(?:pudo|puede|entregad|ha podido)|error de entrega|correo devuelto/, // Spanish
  /n[aã]o (?:foi )?entregue|falha (?:na|de) entrega/, // Portuguese
  /onbestelbaar|niet (?:bezorg|te bestellen)/, // Dutch
  /(?:kan|kunne|kunde|g[aå]r) (?:inte|ikke) .{0,6}lever|olever(?:erbart|bar)|ikke leveres/, // Scandinavian
  /toimittamat|toimittaminen ei|ei voi\S* toimittaa/, // Finnish
  /nedoru[cč]|niedostarcz|nie (?:dostarczono|(?:mo[zż]na|uda[lł]o si[eę]) dostarczy)|zwrot/, // Czech, Polish
  /недостав|не (?:доставлен|может быть доставлен|уда\S{1,6} доставить)|ошибка доставки/, // Russian
  /не (?:вдалося|вдається) доставити/, // Ukrainian
  /k[eé]zbes[ií]thetetlen|nelivrab|nu (?:se poate|a putut) .{0,6}livra|teslim edileme/, // Hungarian, Romanian, Turkish
  /(?:δεν .{0,20}|μη )παρ[αά]δ[οό]σ|לא ניתן ל(?:מסור|מסירה)|تعذر (?:ال)?تسليم|غير قابل للتسليم/, // Greek …
  /配信(?:不能|できません|エラー)|送信(?:できません|エラー)|エラーメール|届きません|不達/, // Japanese
  /退信|退件|(?:投递|投遞|发送|發送|传递|傳遞)失[败敗]|(?:无法|無法|未能?)(?:送[达達]|投[递遞]|[传傳][递遞])/, // Chinese
  /전송 ?실패|반송|배달되지/, // Korean
])

/** Sentences of bounces and warnings. */
export const BOUNCE_SENTENCE = anyOf([
  /(?:could not|cannot|can't|couldn't|unable to|not|failed to|did not) (?:be )?(?:deliver|reach|send|accept)/,
  /undeliverable|non-delivered|not been delivered|was (?:rejected|not delivered)|has been delayed|given up/,
  /delivery (?:to the following|has failed|failed|failure|problem|error|status notification)/,
  /(?:following|these) (?:address|recipient|user)\S* (?:failed|had|was|were|could|did|has|returned)/,
  /permanent (?:fatal )?error|rejected|returned to (?:the )?sender|transcript of session/,
  /user unknown|unknown user|no such user|mailbox (?:is )?(?:full|unavailable)|invalid address|not a member/,
  /does(?:n't| not) have|duplicated message-id|\berror .{0,30}deliver|(?:message|mail) is delayed/,
  /nicht zugestellt|nicht zustellen|n.a pas pu|non (?:remis|distribu)|non [eè] stato|n[aã]o (?:foi|p[oô]de)/,
  /no (?:puede|pudo|ha podido) ser entregado|не может быть доставлено|не удалось доставить/,
  /エラー|できませんでした|配信できません|投递|投遞|退信|전송하지/,
])

/** The server has given up. */
export const FINAL_SENTENCE = anyOf([
  /permanent(?:ly)? (?:fatal )?(?:error|fail)|failed permanently|giving up|given up|gave up|was aborted/,
  /message will be deleted from queue|not going to try again|no further (?:delivery )?attempts/,
])

/** The time of a message is over, whatever the fields say. */
export const EXPIRED_SENTENCE = /\b(?:envelope|message|mail) (?:has )?expired\b/i

/** A person's filter, or a program of the mailbox, sent the message back. */
export const REJECTED_BY_FILTER = /\b(?:was|has been) (?:automatically )?(?:rejected|refused)\b/i

/** The server goes on trying. */
export const WAITING_SENTENCE = anyOf([
  /this is (?:just )?a warning|warning (?:message )?only|do not need to re-?send|no action is required on your part/,
  /not yet been delivered|has been delayed|is delayed for|temporary failure report|still being retried/,
  /will be (?:retried|re-?tried|tried again)|will continue to (?:attempt|try)/,
  /delivery attempts will (?:continue|be)/,
])

export const WAITING_SUBJECT = anyOf([
  /\bdelay(?:ed)?\b|\(delay\)|^\W{0,9}warning\b.{0,200}(?:not yet|could not send|has not)|still being retried/,
  /verz[oö]gert|retard[eé]|遅延/,
])

/** The delivery worked, and somebody asked to be told. */
export const SUCCESS_SENTENCE = anyOf([
  /success(?:ful(?:ly)?)? (?:deliver|mail delivery)|deliver(?:y|ed) (?:was |has been )?success/,
  /delivery status notification \((?:success|relay|expanded)\)/,
])

/** A sentence about something that went wrong, near an address. */
export const FAILURE_NEARBY = anyOf([
  /(?:un)?deliver|fail|return|reject|refus|bounc|error|problem|invalid|unavailable|disabled|quota|full\b|exceed/,
  /not (?:be )?(?:found|reach|accept|exist|known|listed|valid|collected|a member|recogni[sz]ed)|unknown/,
  /no such|no longer|does(?:n.t| not)|did not|could(?:n.t| not)|unable|duplicat/,
  /unzustellbar|nicht|impossible|n.a pas|no se (?:pudo|ha podido)|n[aã]o (?:foi|p[oô]de)|не /,
  /できません|エラー|失敗|不|失败|退信|못/,
])

/** Right in front of an address: a label for recipients that failed. */
export const RECIPIENT_LABEL = anyOf(
  [
    /recipient(?:\(s\)|s)?(?: address| name)?|failed address(?:es)?|undeliverable (?:to|address)|unknown user/,
    /invalid (?:final delivery userid|user|address|recipient)|delivery failed(?: \d+ attempts)?|mailbox is full/,
    /(?:unable|failed) to deliver (?:the |your )?(?:message|mail) to|not delivered to|addressed to/,
    /could not (?:be )?deliver(?:ed)?(?: the message)? to|(?:target|destination) (?:mail )?address/,
    /destinataire|destinatario|empf[aä]nger|宛先|收件人|받는 ?사람/,
  ],
  String.raw`(?:$$)[\s:=]*(?:\[?smtp:|rfc822;)?[\s"'<[(]*$`,
)

/** Right in front of an address: a header field of the message that is repeated. */
export const OWN_LABEL = anyOf(
  [
    /from|to|cc|bcc|sender|reply-to|mail from|return-path|envelope-from|message-id|subject|x-[\w-]+|received/,
    /delivered-to|von|an|de|para|da/,
  ],
  String.raw`^\W*(?:$$)\s*:\s*[^:]*$`,
)

/** In front of an address: whom to ask, who sent the message, or where an address came from. */
export const CONTACT_LABEL = anyOf(
  [
    /contact|assistance|help|questions?|support|write to|e-?mail us|mailto:|send (?:e-?)?mail to|report to|sent by/,
    /message from|forward|generated from|expanded from|envelope-from|mail from|hello|hallo|bonjour|sender|from|by/,
  ],
  String.raw`(?:$$)\b[^@]{0,30}$`,
)

/** A line that ends by telling where to write, or who wrote. */
export const CONTACT_LINE = anyOf(
  [/contact|send (?:e-?)?mail to|to the address|write to|sent by|message from|reply to|assistance/],
  String.raw`(?:$$)\W*$`,
)

/** Names under which mail servers write. */
export const DAEMON_NAME = anyOf([
  /mailer[-_. ]?daemon|post[-_]?master|mdaemon|mmsc|majordomo|system administrator|internet mail|no-?reply@sns/,
  /mail[-_. ]?(?:delivery|deliver|system|administrator)|delivery[-_. ](?:sub)?system|(?:smtp|mail)[-_. ]service/,
  /smtp_gateways|antivirus|anti-virus|imss|interscan|notification|bounce|microsoft (?:outlook|exchange)/,
  // The programs of mailing lists.
  /(?:^|<|\s)owner-|-(?:owner|admin|request)@/,
])

/** Programs that write of other things, too: they are servers where they return a mail. */
export const PROGRAM_NAME = /no-?reply|do-?not-?reply|help-?desk|support@|service@/i

/** Subjects of vacation notes, challenges and receipts. */
export const AUTO_REPLY_SUBJECT = anyOf([
  anyOf(
    [
      /\[?auto(?:matic|mated)?[-_ ]?(?:re(?:ply|sponse|spons|ponse)|respon\w{0,9}|answer|antwort|svar)/,
      /(?:i am |i'm )?(?:currently )?out[- ]of[- ](?:the[- ])?office|ooo\b|out of (?:the )?(?:country|town)/,
      /away (?:from|until|on)|i am (?:away|on)/,
      /on (?:vacation|holiday|leave)|vacation|holiday|annual leave|thank you for (?:your|contacting)/,
      /abwesenheit|automatische (?:antwort|e-?mail)|r[eé]ponse automatique|absen(?:ce|t)|respuesta autom[aá]tica/,
      /fuera de (?:la )?oficina|risposta automatica|fuori (?:ufficio|sede)|resposta autom[aá]tica/,
      /automatisch antwoord|afwezig|automatiske?t? svar|fr[aå]nvaro|autosvar|automaattinen|poissa/,
      /odpowied[zź] automatyczna|automatyczna odpowied|automatick[aá] odpov[eě]|automatikus v[aá]lasz|r[aă]spuns automat/,
      /автоответ|автоматический ответ|автоматична відповідь|otomatik (?:yan[ıi]t|cevap)|αυτόματη απάντηση/,
      /(?:תשובה|תגובה) אוטומטית|رد تلقائي|不在|自動応答|自動返信|自[动動][回答][复覆復]|자동 ?(?:회신|응답)/,
    ],
    String.raw`^\W{0,9}(?:(?:re|aw|sv|vs|tr|odp): ?)?(?:$$)`,
  ),
  /\((?:automatic|auto) (?:response|reply)\)|challenge[- ]response|verification of your e-?mail/,
  /(?:confirm|verify) your (?:e-?mail|message|identity)/,
])

/** Subjects of answers. */
export const ANSWER_SUBJECT = /^\W{0,9}(?:re|aw|antw|sv|vs|odp|rif|ynt): ?/i

/** Lines that announce the returned message behind a ruler of dashes and the like. */
export const RETURNED_BEHIND_RULER = anyOf(
  [
    /below this line|this is a copy|the (?:header|body|original|returned)|a copy of|copy of|attachment is/,
    /original|returned|unsent|undelivered|message (?:text|headers?|body)|enclosed|included|attached|forwarded|start of/,
    /mensaje original|mensagem original|message d'origine|urspr[uü]ngliche|originalnachricht/,
  ],
  String.raw`^[\s>|]*[-=_*|]{2,}\s*(?:$$)\b.*(?:message|mail|header|copy|text|info|adjunto|nachricht|suppressed|follow)`,
)

/** The same without a ruler: whole sentences only, so that nothing else is taken for it. */
export const RETURNED_SENTENCE = anyOf(
  [
    /(?:the )?(?:original|returned|unsent|undelivered|rejected|bounced) (?:message|e?-?mail|headers?)? ?(?:follow|below)/,
    /(?:the )?original message (?:headers? )?(?:as received )?(?:is |are )?(?:as )?(?:follows?|below|attached)\b/,
    /(?:included is|here is|below is) a copy of (?:the|your|my)\b.*(?:message|mail|header)/,
    /a (?:copy|summary) of (?:the|your|my)\b.*(?:message|mail|header)|your message reads/,
    /message (?:headers?|text|body) (?:follows?|is below|suppressed)\b/,
    /(?:bounced|original|returned) (?:e-?mail|message|mail):?\s*$/,
  ],
  String.raw`^\W{0,9}(?:$$)`,
)
