/**
 * Files that a server must refuse: what an administrator could leave in the configuration folder, and what is said.
 */

export interface BadFile {
  what: string
  /** In the configuration folder. */
  file: string
  text: string | Buffer
  /** Behind the name of the file: line, column, and what is wrong. */
  says: string
}

const POOLS = [
  'version: 1',
  'default_pool: default',
  'pools:',
  '  default:',
  '    ips:',
  '      - { address: 127.0.0.11, hostname: mta1.sternpost.test, warmed: true }',
  '',
].join('\n')

/** Nine levels of ten: a thousand million items, if it were expanded. */
const BOMB = [
  'a: &a [x, x, x, x, x, x, x, x, x, x]',
  ...'bcdefghi'.split('').map((name, index) => {
    const below = `*${'abcdefgh'[index]}`
    return `${name}: &${name} [${Array.from({ length: 10 }, () => below).join(', ')}]`
  }),
  '',
].join('\n')

export const BAD_FILES: readonly BadFile[] = [
  {
    what: 'a curve that falls',
    file: 'warmup.d/90-bad.yaml',
    text: 'curves:\n  down:\n    stages: [50, 40]\n',
    says: '3:18: curves.down.stages[1]: 40 is below the stage before it (50)',
  },
  {
    what: 'a share over 100 %',
    file: 'warmup.d/90-bad.yaml',
    text: 'defaults:\n  provider_share: { gmail: 150% }\n',
    says: '2:28: defaults.provider_share.gmail: "150%" is not between 0 and 1',
  },
  {
    what: 'a pool without IPs',
    file: 'pools.d/90-bad.yaml',
    text: 'pools:\n  empty: {}\n',
    says: '2:3: pools.empty: this pool has no IPs',
  },
  {
    what: 'one IP in two pools',
    file: 'pools.d/90-bad.yaml',
    text: 'pools:\n  twice:\n    ips: [{ address: 127.0.0.11, hostname: a.sternpost.test }]\n',
    says: '3:22: pools.twice.ips[0].address: 127.0.0.11 is already in pool "default"',
  },
  {
    what: 'an unknown provider',
    file: 'pools.d/90-bad.yaml',
    text: 'pools:\n  default:\n    limits: { gogle: { connections: 1 } }\n',
    says: '3:15: pools.default.limits.gogle: no provider "gogle"; did you mean "google"?',
  },
  {
    what: 'a regex that does not compile',
    file: 'bounces.d/90-bad.yaml',
    text: "rules:\n  - { id: broken, match: '(', category: moved, example: '550 (' }\n",
    says: '2:26: ',
  },
  {
    what: 'a regex that backtracks without bound',
    file: 'providers.d/90-bad.yaml',
    text: "replies:\n  - { id: slow, match: '(a+)+$', do: limit, connections: 1, for: 1h, example: '421 aaa' }\n",
    says: '2:24: ',
  },
  { what: 'a YAML bomb', file: 'pools.d/90-bad.yaml', text: BOMB, says: '1:4: an anchor (&a) is not taken' },
  {
    what: 'bytes that are not UTF-8',
    file: 'pools.d/90-bad.yaml',
    text: Buffer.from('pools: {}\n# \xff\n', 'latin1'),
    says: '2:1: this line is not UTF-8 text',
  },
  {
    what: 'a key that is there twice',
    file: 'pools.yaml',
    text: `${POOLS}version: 1\n`,
    says: '7:1: this key is here twice',
  },
  { what: 'a file that was cut off', file: 'pools.yaml', text: '', says: '1:1: the key "pools" is missing' },
]
