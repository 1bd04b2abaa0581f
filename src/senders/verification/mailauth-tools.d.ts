/** The one function of mailauth's internal tools that is used here; the package has no types for it. */
declare module 'mailauth/lib/tools.js' {
  export function getPublicKey(
    type: 'DKIM',
    name: string,
    minBitLength: number,
    resolver: (name: string, type: string) => Promise<string[][]>,
    options: { hashAlgo: string },
  ): Promise<{ publicKey: Buffer; keyType: string; modulusLength?: number; warnings: string[] }>
}
