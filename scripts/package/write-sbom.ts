/**
 * Prints what is in the image as SPDX 2.3 JSON: the packages of Debian, Node.js, the modules. `node
 * scripts/package/write-sbom.ts ROOT VERSION CREATED DIGEST`: the unpacked image, its version, its time, its digest.
 */
import { globSync, readFileSync } from 'node:fs'
import { join } from 'node:path'

const USAGE = 64
const MODULES = 'usr/lib/sternpost/node_modules'
const NOTHING_SAID = 'NOASSERTION'

interface Part {
  name: string
  version: string
  licence: string
  /** Package URL, as scanners for known faults look them up. */
  locator: string
}

const [root, version, created, digest] = process.argv.slice(2)
if (root === undefined || version === undefined || created === undefined || digest === undefined) {
  process.stderr.write('usage: node scripts/package/write-sbom.ts ROOT VERSION CREATED DIGEST\n')
  process.exit(USAGE)
}
process.stdout.write(`${JSON.stringify(documentOf([...debianParts(root), ...moduleParts(root)]), null, 2)}\n`)

function documentOf(parts: readonly Part[]): object {
  const name = `sternpost-${version}`
  const packages = parts.map((part, index) => ({
    SPDXID: `SPDXRef-${index + 1}`,
    name: part.name,
    versionInfo: part.version,
    downloadLocation: NOTHING_SAID,
    licenseConcluded: NOTHING_SAID,
    licenseDeclared: part.licence,
    copyrightText: NOTHING_SAID,
    filesAnalyzed: false,
    externalRefs: [{ referenceCategory: 'PACKAGE-MANAGER', referenceType: 'purl', referenceLocator: part.locator }],
  }))
  return {
    spdxVersion: 'SPDX-2.3',
    dataLicense: 'CC0-1.0',
    SPDXID: 'SPDXRef-DOCUMENT',
    name,
    documentNamespace: `https://spdx.org/spdxdocs/${name}-${digest}`,
    creationInfo: { created, creators: ['Tool: sternpost build-image'] },
    packages,
    relationships: packages.map(({ SPDXID }) => ({
      spdxElementId: 'SPDXRef-DOCUMENT',
      relationshipType: 'DESCRIBES',
      relatedSpdxElement: SPDXID,
    })),
  }
}

function debianParts(folder: string): Part[] {
  return globSync('var/lib/dpkg/status.d/*', { cwd: folder })
    .toSorted()
    .map((file) => {
      const text = readFileSync(join(folder, file), 'utf8')
      const field = (name: string): string => new RegExp(`^${name}: (.*)$`, 'm').exec(text)?.[1] ?? ''
      const [name, ofPackage, architecture] = [field('Package'), field('Version'), field('Architecture')]
      const licence = name === 'sternpost' ? 'MIT' : NOTHING_SAID
      const locator = `pkg:deb/debian/${name}@${encodeURIComponent(ofPackage)}?arch=${architecture}`
      return { name, version: ofPackage, licence, locator }
    })
}

/** Node.js comes as a module too, and is moved out of them: its version is that of the program that runs this. */
function moduleParts(folder: string): Part[] {
  const node = process.versions.node
  const files = [
    '*/package.json',
    '@*/*/package.json',
    '**/node_modules/*/package.json',
    '**/node_modules/@*/*/package.json',
  ]
  const modules = globSync(files, { cwd: join(folder, MODULES) }).map((file): Part => {
    const { name, version: ofModule, license } = JSON.parse(readFileSync(join(folder, MODULES, file), 'utf8'))
    return { name, version: ofModule, licence: license, locator: `pkg:npm/${name.replace('@', '%40')}@${ofModule}` }
  })
  const byName = new Map(modules.map((part) => [part.locator, part]))
  const sorted = [...byName.values()].toSorted((left, right) => (left.locator < right.locator ? -1 : 1))
  return [{ name: 'node', version: node, licence: 'MIT', locator: `pkg:generic/node@${node}` }, ...sorted]
}
