/**
 * DMARC and TLS reports as others write them: the forms of RFC 7489 Appendix C, RFC 9990 Appendix B and RFC 8460
 * Appendix B, and those of three large providers, which differ in order, case and what they leave out. `begin` is the
 * first second of the reported day. Also: the mails that bring them, packed files, and bombs.
 */
import { crc32, deflateRawSync, gzipSync } from 'node:zlib'

export interface SampleFacts {
  domain?: string
  begin?: number
  reportId?: string
}

type Sample = (facts?: SampleFacts) => string

/** 2026-11-20 */
const DAY_BEGIN = 1_795_132_800
const LAST = 86_399

/** Every element of the schema in RFC 7489 Appendix C. */
export const rfc7489: Sample = ({ domain = 'acme.com', begin = DAY_BEGIN, reportId = 'r-7489' } = {}) =>
  `<?xml version="1.0" encoding="UTF-8" ?>
<feedback>
  <version>1.0</version>
  <report_metadata>
    <org_name>Receiver Example</org_name>
    <email>dmarc@receiver.example</email>
    <extra_contact_info>https://receiver.example/dmarc</extra_contact_info>
    <report_id>${reportId}</report_id>
    <date_range><begin>${begin}</begin><end>${begin + LAST}</end></date_range>
    <error>one lookup had no answer</error>
  </report_metadata>
  <policy_published>
    <domain>${domain}</domain><adkim>r</adkim><aspf>r</aspf><p>none</p><sp>none</sp><pct>100</pct><fo>0</fo>
  </policy_published>
  <record>
    <row>
      <source_ip>203.0.113.10</source_ip>
      <count>20</count>
      <policy_evaluated>
        <disposition>none</disposition><dkim>pass</dkim><spf>fail</spf>
        <reason><type>forwarded</type><comment>known forwarder</comment></reason>
      </policy_evaluated>
    </row>
    <identifiers>
      <envelope_to>receiver.example</envelope_to><envelope_from>lists.example</envelope_from>
      <header_from>news.${domain}</header_from>
    </identifiers>
    <auth_results>
      <dkim><domain>${domain}</domain><selector>s1</selector><result>pass</result><human_result>good</human_result></dkim>
      <dkim><domain>lists.example</domain><result>fail</result></dkim>
      <spf><domain>lists.example</domain><scope>mfrom</scope><result>pass</result></spf>
    </auth_results>
  </record>
  <record>
    <row>
      <source_ip>2001:DB8:0:0::9</source_ip>
      <count>3</count>
      <policy_evaluated><disposition>quarantine</disposition><dkim>fail</dkim><spf>fail</spf></policy_evaluated>
    </row>
    <identifiers><header_from>${domain}</header_from></identifiers>
    <auth_results><spf><domain>evil.example</domain><scope>helo</scope><result>none</result></spf></auth_results>
  </record>
</feedback>
`

/** RFC 9990: a namespace, a generator, np, testing, discovery_method, the disposition pass, an extension. */
export const rfc9990: Sample = ({
  domain = 'acme.com',
  begin = DAY_BEGIN,
  reportId = '3v98abbp8ya9n3va8yr8oa3ya',
} = {}) =>
  `<dmarc:feedback xmlns:dmarc="urn:ietf:params:xml:ns:dmarc-2.0">
  <dmarc:version>1.0</dmarc:version>
  <dmarc:report_metadata>
    <dmarc:org_name>Sample Reporter</dmarc:org_name>
    <dmarc:email>report_sender@example-reporter.com</dmarc:email>
    <dmarc:extra_contact_info lang="en">https://example-reporter.com</dmarc:extra_contact_info>
    <dmarc:report_id>${reportId}</dmarc:report_id>
    <dmarc:date_range><dmarc:begin>${begin}</dmarc:begin><dmarc:end>${begin + LAST}</dmarc:end></dmarc:date_range>
    <dmarc:generator>Example DMARC Aggregate Reporter v1.2</dmarc:generator>
  </dmarc:report_metadata>
  <dmarc:policy_published>
    <dmarc:domain>${domain}</dmarc:domain>
    <dmarc:p>quarantine</dmarc:p><dmarc:sp>none</dmarc:sp><dmarc:np>none</dmarc:np><dmarc:testing>n</dmarc:testing>
    <dmarc:discovery_method>treewalk</dmarc:discovery_method>
  </dmarc:policy_published>
  <dmarc:extension><other:count xmlns:other="urn:other">7</other:count></dmarc:extension>
  <dmarc:record>
    <dmarc:row>
      <dmarc:source_ip>192.0.2.123</dmarc:source_ip>
      <dmarc:count>123</dmarc:count>
      <dmarc:policy_evaluated>
        <dmarc:disposition>pass</dmarc:disposition><dmarc:dkim>pass</dmarc:dkim><dmarc:spf>fail</dmarc:spf>
        <dmarc:reason><dmarc:type>policy_test_mode</dmarc:type></dmarc:reason>
      </dmarc:policy_evaluated>
    </dmarc:row>
    <dmarc:identifiers>
      <dmarc:envelope_from>${domain}</dmarc:envelope_from><dmarc:header_from>${domain}</dmarc:header_from>
    </dmarc:identifiers>
    <dmarc:auth_results>
      <dmarc:dkim>
        <dmarc:domain>${domain}</dmarc:domain><dmarc:result>pass</dmarc:result><dmarc:selector>abc123</dmarc:selector>
      </dmarc:dkim>
      <dmarc:spf><dmarc:domain>${domain}</dmarc:domain><dmarc:result>fail</dmarc:result></dmarc:spf>
    </dmarc:auth_results>
  </dmarc:record>
</dmarc:feedback>
`

export const google: Sample = ({ domain = 'acme.com', begin = DAY_BEGIN, reportId = '12345678901234567890' } = {}) =>
  `<?xml version="1.0" encoding="UTF-8" ?>
<feedback>
  <report_metadata>
    <org_name>google.com</org_name>
    <email>noreply-dmarc-support@google.com</email>
    <extra_contact_info>https://support.google.com/a/answer/2466580</extra_contact_info>
    <report_id>${reportId}</report_id>
    <date_range>
      <begin>${begin}</begin>
      <end>${begin + LAST}</end>
    </date_range>
  </report_metadata>
  <policy_published>
    <domain>${domain}</domain>
    <adkim>r</adkim>
    <aspf>r</aspf>
    <p>none</p>
    <sp>none</sp>
    <pct>100</pct>
    <np>none</np>
  </policy_published>
  <record>
    <row>
      <source_ip>127.0.0.11</source_ip>
      <count>1180</count>
      <policy_evaluated>
        <disposition>none</disposition>
        <dkim>pass</dkim>
        <spf>pass</spf>
      </policy_evaluated>
    </row>
    <identifiers>
      <header_from>${domain}</header_from>
    </identifiers>
    <auth_results>
      <dkim><domain>${domain}</domain><result>pass</result><selector>ps1a2b</selector></dkim>
      <spf><domain>bounces.${domain}</domain><result>pass</result></spf>
    </auth_results>
  </record>
  <record>
    <row>
      <source_ip>203.0.113.9</source_ip>
      <count>4</count>
      <policy_evaluated>
        <disposition>none</disposition>
        <dkim>fail</dkim>
        <spf>fail</spf>
      </policy_evaluated>
    </row>
    <identifiers>
      <header_from>${domain}</header_from>
    </identifiers>
    <auth_results>
      <spf><domain>evil.example</domain><result>softfail</result></spf>
    </auth_results>
  </record>
</feedback>
`

/** The row last, results with a capital, a byte order mark, namespaces of the schema. */
export const microsoft: Sample = ({ domain = 'acme.com', begin = DAY_BEGIN, reportId = '8f0d2c5e4b' } = {}) =>
  `\ufeff<?xml version="1.0"?>\r
<feedback xmlns:xsd="http://www.w3.org/2001/XMLSchema" xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance">\r
  <version>1.0</version>\r
  <report_metadata>\r
    <org_name>Enterprise Outlook</org_name>\r
    <email>dmarcreport@microsoft.com</email>\r
    <report_id>${reportId}</report_id>\r
    <date_range><begin>${begin}</begin><end>${begin + LAST + 1}</end></date_range>\r
  </report_metadata>\r
  <policy_published><domain>${domain}</domain><p>none</p><sp>none</sp><pct>100</pct><fo>0</fo></policy_published>\r
  <record>\r
    <identifiers>\r
      <envelope_to>contoso.example</envelope_to><envelope_from>bounces.${domain}</envelope_from>\r
      <header_from>${domain}</header_from>\r
    </identifiers>\r
    <auth_results>\r
      <spf><domain>bounces.${domain}</domain><scope>mfrom</scope><result>Pass</result></spf>\r
      <dkim><domain>${domain}</domain><selector>ps1a2b</selector><result>Pass</result></dkim>\r
    </auth_results>\r
    <row>\r
      <source_ip>127.0.0.12</source_ip><count>5</count>\r
      <policy_evaluated><disposition>None</disposition><dkim>Pass</dkim><spf>Pass</spf></policy_evaluated>\r
    </row>\r
  </record>\r
</feedback>`

/** The end before the begin, an empty element, a comment, spaces inside of texts. */
export const yahoo: Sample = ({ domain = 'acme.com', begin = DAY_BEGIN, reportId = '1795219200.570207' } = {}) =>
  `<?xml version="1.0"?>
<!-- made by a reporter -->
<feedback>
  <report_metadata>
    <org_name>Yahoo</org_name><email>dmarchelp@yahooinc.com</email><report_id>${reportId}</report_id>
    <date_range><end>${begin + LAST} </end><begin>${begin} </begin></date_range><error/>
  </report_metadata>
  <policy_published><domain>${domain}</domain><adkim>r</adkim><aspf>r</aspf><p>none</p><pct>100</pct></policy_published>
  <record>
    <row><source_ip> 127.0.0.11 </source_ip><count>7</count>
      <policy_evaluated><disposition>none</disposition><dkim>pass</dkim><spf>pass</spf></policy_evaluated></row>
    <identifiers><header_from><![CDATA[${domain}]]></header_from></identifiers>
    <auth_results><dkim><domain>${domain}</domain><result>pass</result></dkim>
      <spf><domain>bounces.${domain}</domain><result>pass</result></spf></auth_results>
  </record>
</feedback>
`

export const DMARC_SAMPLES: Record<string, Sample> = { rfc7489, rfc9990, google, microsoft, yahoo }

/** RFC 8460 Appendix B, of another domain and day. */
export const rfc8460: Sample = ({ domain = 'acme.com', begin = DAY_BEGIN, reportId = '5065427c-23d3-47ca' } = {}) =>
  JSON.stringify({
    'organization-name': 'Company-X',
    'date-range': { 'start-datetime': timeOf(begin), 'end-datetime': timeOf(begin + LAST) },
    'contact-info': 'sts-reporting@company-x.example',
    'report-id': reportId,
    policies: [
      {
        policy: {
          'policy-type': 'sts',
          'policy-string': ['version: STSv1', 'mode: testing', `mx: *.mail.${domain}`, 'max_age: 86400'],
          'policy-domain': domain,
          'mx-host': `*.mail.${domain}`,
        },
        summary: { 'total-successful-session-count': 5326, 'total-failure-session-count': 303 },
        'failure-details': [
          {
            'result-type': 'certificate-expired',
            'sending-mta-ip': '2001:db8:abcd:0012::1',
            'receiving-mx-hostname': `mx1.mail.${domain}`,
            'failed-session-count': 100,
          },
          {
            'result-type': 'starttls-not-supported',
            'sending-mta-ip': '2001:db8:abcd:0013::1',
            'receiving-mx-hostname': `mx2.mail.${domain}`,
            'receiving-ip': '203.0.113.56',
            'failed-session-count': 200,
            'additional-information': 'https://reports.company-x.example/report_info?id=5065427c',
          },
          {
            'result-type': 'validation-failure',
            'sending-mta-ip': '198.51.100.62',
            'receiving-ip': '203.0.113.58',
            'receiving-mx-hostname': `mx-backup.mail.${domain}`,
            'failed-session-count': 3,
            'failure-reason-code': 'X509_V_ERR_PROXY_PATH_LENGTH_EXCEEDED',
          },
        ],
      },
    ],
  })

const timeOf = (seconds: number): string => new Date(seconds * 1_000).toISOString().replace('.000', '')

interface ZipChanges {
  /** What the directory says of the size. */
  declared?: number
  stored?: boolean
  files?: number
  encrypted?: boolean
}

/** An archive as `zip` writes it. */
export function zipOf(content: string | Buffer, changes: ZipChanges = {}): Buffer {
  const bytes = Buffer.from(content)
  const { declared = bytes.length, stored = false, files = 1, encrypted = false } = changes
  const packed = stored ? bytes : deflateRawSync(bytes)
  const name = Buffer.from('google.com!acme.com!1795132800!1795219199.xml')
  const fields = Buffer.alloc(22)
  fields.writeUInt16LE(encrypted ? 1 : 0, 2)
  fields.writeUInt16LE(stored ? 0 : 8, 4)
  fields.writeUInt32LE(crc32(bytes), 10)
  fields.writeUInt32LE(packed.length, 14)
  fields.writeUInt32LE(declared, 18)
  const local = Buffer.concat([Buffer.from('PK\u0003\u0004'), fields, lengthOf(name), Buffer.alloc(2), name, packed])
  const entry = Buffer.concat([Buffer.from('PK\u0001\u0002\0\0'), fields, lengthOf(name), Buffer.alloc(16), name])
  const end = Buffer.alloc(22)
  end.write('PK\u0005\u0006')
  end.writeUInt16LE(files, 8)
  end.writeUInt16LE(files, 10)
  end.writeUInt32LE(entry.length, 12)
  end.writeUInt32LE(local.length, 16)
  return Buffer.concat([local, entry, end])
}

function lengthOf(name: Buffer): Buffer {
  const length = Buffer.alloc(2)
  length.writeUInt16LE(name.length)
  return length
}

/** What is said of a file in a mail. */
export interface ReportFile {
  type: string
  name: string
  bytes: Buffer
}

export const gzipFile = (content: string): ReportFile => ({
  type: 'application/gzip',
  name: 'yahoo.com!acme.com!1795132800!1795219199.xml.gz',
  bytes: gzipSync(content),
})

export const zipFile = (content: string): ReportFile => ({
  type: 'application/zip',
  name: 'google.com!acme.com!1795132800!1795219199.zip',
  bytes: zipOf(content),
})

export const tlsFile = (content: string): ReportFile => ({
  type: 'application/tlsrpt+gzip',
  name: 'company-x.example!acme.com!1795132800!1795219199.json.gz',
  bytes: gzipSync(content),
})

const HEAD = [
  'From: noreply-dmarc-support@google.com',
  'To: dmarc@mail.example.net',
  'Subject: Report domain: acme.com Submitter: google.com Report-ID: 1',
  'MIME-Version: 1.0',
]

function headersOf({ type, name }: ReportFile): string[] {
  return [
    `Content-Type: ${type}; name="${name}"`,
    `Content-Disposition: attachment; filename="${name}"`,
    'Content-Transfer-Encoding: base64',
  ]
}

function linesOf(bytes: Buffer): string[] {
  return bytes.toString('base64').match(/.{1,76}/g) ?? []
}

/** The file is the whole mail, as Google sends it. */
export function bareMail(file: ReportFile): string {
  return [...HEAD, ...headersOf(file), '', ...linesOf(file.bytes), ''].join('\r\n')
}

/** Behind some prose, as Microsoft, Yahoo and RFC 8460 §5.3 have it. */
export function mailWith(...files: ReportFile[]): string {
  const parts = files.flatMap((file) => ['--b1', ...headersOf(file), '', ...linesOf(file.bytes)])
  const prose = ['--b1', 'Content-Type: text/plain', '', 'This is an aggregate report <about> {your} domain.']
  const type = 'Content-Type: multipart/report; report-type="tlsrpt"; boundary="b1"'
  return [...HEAD, type, '', ...prose, ...parts, '--b1--', ''].join('\r\n')
}

const FOUR_MEBIBYTES = 4 * 1_024 * 1_024
const XML_START = '<?xml version="1.0"?><feedback><report_metadata><org_name>x</org_name>'

/** Files that mean harm; each is refused. */
export const BOMBS: Record<string, ReportFile> = {
  'a gzip bomb': { ...gzipFile(''), bytes: gzipSync(Buffer.alloc(100 * 1_024 * 1_024, 0x20), { level: 1 }) },
  'a zip bomb': { ...zipFile(''), bytes: zipOf(Buffer.alloc(100 * 1_024 * 1_024, 0x20)) },
  'a zip that declares a huge size': { ...zipFile(''), bytes: zipOf(google(), { declared: 0xffff_fffe }) },
  'a zip that declares too little': { ...zipFile(''), bytes: zipOf(google(), { declared: 10 }) },
  'a zip of two files': { ...zipFile(''), bytes: zipOf(google(), { files: 2 }) },
  'an encrypted zip': { ...zipFile(''), bytes: zipOf(google(), { encrypted: true }) },
  'a cut gzip file': { ...gzipFile(''), bytes: gzipSync(google()).subarray(0, 200) },
  'a cut zip file': { ...zipFile(''), bytes: zipOf(google()).subarray(0, 300) },
  'gzip in gzip': { ...gzipFile(''), bytes: gzipSync(gzipSync(google())) },
  'a billion laughs': gzipFile(
    `<?xml version="1.0"?><!DOCTYPE lolz [<!ENTITY lol "lol"><!ENTITY lol2 "&lol;&lol;&lol;">]>${google().slice(39)}`,
  ),
  'an external entity': gzipFile(
    google().replace('<feedback>', '<!DOCTYPE feedback [<!ENTITY x SYSTEM "file:///etc/passwd">]><feedback>'),
  ),
  'an entity behind the start': gzipFile(google().replace('<record>', '<!ENTITY x "y"><record>')),
  'deep nesting': gzipFile(XML_START + '<a>'.repeat(1_000_000)),
  'a name without an end': gzipFile(`${XML_START}<${'a'.repeat(FOUR_MEBIBYTES)}`),
  'an attribute without an end': gzipFile(`${XML_START}<a b="${'&amp;'.repeat(1_000_000)}`),
  'too many elements': gzipFile(`${XML_START}${'<a/>'.repeat(1_000_000)}`),
  'too many records': gzipFile(google().replace('</feedback>', `${'<record></record>'.repeat(10_001)}</feedback>`)),
  'a JSON of arrays': tlsFile(`{"policies":${'['.repeat(1_000_000)}`),
  'a large JSON': tlsFile(`{"policies":[${'[],'.repeat(1_000_000)}[]]}`),
}
