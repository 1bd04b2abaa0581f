/**
 * Writes an image into a folder (OCI image format 1.1) of one layer, `LAYER.tar` with its `LAYER.tar.gz` beside it: what it
 * runs, the manifest, the index; the compressed layer is moved. Prints the digest of the manifest.
 *
 * `node scripts/image/write-oci.ts LAYER.tar FOLDER --version V --arch ARCH --created TIME --revision COMMIT --user ID`
 */
import { createHash } from 'node:crypto'
import { mkdirSync, readFileSync, renameSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { parseArgs } from 'node:util'

const TYPE = 'application/vnd.oci.image'
const SECOND = 1_000_000_000

const text = { type: 'string', default: '' } as const
const { values: facts, positionals } = parseArgs({
  allowPositionals: true,
  options: { version: text, arch: text, created: text, revision: text, user: text },
})
const [layerFile = '', folder = ''] = positionals
const blobs = join(folder, 'blobs/sha256')
const platform = { architecture: facts.arch, os: 'linux' }

mkdirSync(blobs, { recursive: true })
const packed = readFileSync(`${layerFile}.gz`)
renameSync(`${layerFile}.gz`, join(blobs, digestOf(packed)))
const layer = { mediaType: `${TYPE}.layer.v1.tar+gzip`, digest: `sha256:${digestOf(packed)}`, size: packed.length }
const config = keep(`${TYPE}.config.v1+json`, configuration())
const manifestType = `${TYPE}.manifest.v1+json`
const manifest = keep(manifestType, { schemaVersion: 2, mediaType: manifestType, config, layers: [layer] })
const name = `sternpost:${facts.version}`
const annotations = { 'org.opencontainers.image.ref.name': name, 'io.containerd.image.name': `localhost/${name}` }
const index = {
  schemaVersion: 2,
  mediaType: `${TYPE}.index.v1+json`,
  manifests: [{ ...manifest, annotations, platform }],
}
write('index.json', index)
write('oci-layout', { imageLayoutVersion: '1.0.0' })
// Older versions of docker load read this.
write('manifest.json', [{ Config: pathOf(config), RepoTags: [name], Layers: [pathOf(layer)] }])
process.stdout.write(`${manifest.digest}\n`)

function configuration(): object {
  return {
    ...platform,
    created: facts.created,
    config: {
      User: `${facts.user}:${facts.user}`,
      WorkingDir: '/data',
      Entrypoint: ['/usr/lib/sternpost/entry'],
      Cmd: ['serve'],
      Volumes: { '/data': {} },
      StopSignal: 'SIGTERM',
      Env: [
        'PATH=/usr/bin:/usr/sbin',
        'HOME=/data',
        'TMPDIR=/data',
        'NODE_ENV=production',
        'MALLOC_ARENA_MAX=4',
        'MALLOC_MMAP_THRESHOLD_=1048576',
        'CREDENTIALS_DIRECTORY=/run/secrets',
        'STERNPOST_CONFIG=/data/config',
        'STERNPOST_DATA_DIR=/data',
        'STERNPOST_ADMIN_SOCKET=/data/admin.sock',
      ],
      Healthcheck: {
        Test: ['CMD', '/usr/lib/sternpost/is-healthy'],
        Interval: 30 * SECOND,
        Timeout: 10 * SECOND,
        StartPeriod: 20 * SECOND,
        Retries: 3,
      },
      Labels: {
        'org.opencontainers.image.title': 'Sternpost',
        'org.opencontainers.image.description': 'self-hosted email-sending appliance',
        'org.opencontainers.image.version': facts.version,
        'org.opencontainers.image.revision': facts.revision,
        'org.opencontainers.image.created': facts.created,
        'org.opencontainers.image.licenses': 'MIT',
      },
    },
    rootfs: { type: 'layers', diff_ids: [`sha256:${digestOf(readFileSync(layerFile))}`] },
    history: [{ created: facts.created, created_by: 'scripts/build-image' }],
  }
}

interface Descriptor {
  mediaType: string
  digest: string
  size: number
}

function keep(mediaType: string, value: object): Descriptor {
  const bytes = JSON.stringify(value)
  writeFileSync(join(blobs, digestOf(bytes)), bytes)
  return { mediaType, digest: `sha256:${digestOf(bytes)}`, size: bytes.length }
}

function digestOf(bytes: Buffer | string): string {
  return createHash('sha256').update(bytes).digest('hex')
}

function pathOf({ digest }: Descriptor): string {
  return `blobs/${digest.replace(':', '/')}`
}

function write(file: string, value: object): void {
  writeFileSync(join(folder, file), JSON.stringify(value))
}
