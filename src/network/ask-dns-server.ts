/**
 * One question to one DNS server, by UDP or by TCP, from a socket of its own (a new port each time, RFC 5452 §9.2).
 *
 * Resolves with the first message that answers the question, or with the reason why none came; never rejects. The
 * socket is connected, so the kernel drops what comes from elsewhere; other ids and other questions are passed over.
 */
import { createSocket } from 'node:dgram'
import { connect } from 'node:net'
import { errorCode, errorText } from '../base/errors.ts'
import { readAnswer, TYPES, writeQuestion } from './dns-message.ts'
import type { DnsMessage, Question } from './dns-message.ts'

interface AskLimits {
  server: { address: string; port: number }
  question: Question
  timeoutMilliseconds: number
}

export interface DnsReply {
  message: Buffer
  answer: DnsMessage
}

const SILENCE = 'the validating resolver did not answer in time'
const LENGTH_BYTES = 2

export function askByUdp({ server, question, timeoutMilliseconds }: AskLimits): Promise<DnsReply | string> {
  return new Promise((resolve) => {
    const socket = createSocket(server.address.includes(':') ? 'udp6' : 'udp4')
    let isOver = false
    const end = (result: DnsReply | string): void => {
      if (isOver) return
      isOver = true
      clearTimeout(timer)
      socket.close()
      resolve(result)
    }
    const timer = setTimeout(() => end(SILENCE), timeoutMilliseconds)
    socket.on('error', (error) => end(reasonOf(error)))
    socket.on('message', (message) => {
      const answer = answerTo(question, message)
      if (answer !== undefined) end({ message, answer })
    })
    socket.connect(server.port, server.address, () => {
      if (!isOver) socket.send(writeQuestion(question))
    })
  })
}

/** RFC 1035 §4.2.2: each message has its length in front. */
export function askByTcp({ server, question, timeoutMilliseconds }: AskLimits): Promise<DnsReply | string> {
  return new Promise((resolve) => {
    const socket = connect({ host: server.address, port: server.port })
    const chunks: Buffer[] = []
    let size = 0
    const end = (result: DnsReply | string): void => {
      clearTimeout(timer)
      socket.destroy()
      resolve(result)
    }
    const timer = setTimeout(() => end(SILENCE), timeoutMilliseconds)
    socket.on('error', (error) => end(reasonOf(error)))
    socket.on('close', () => end('the validating resolver closed the connection'))
    socket.on('connect', () => {
      const bytes = writeQuestion(question)
      const length = Buffer.alloc(LENGTH_BYTES)
      length.writeUInt16BE(bytes.length)
      socket.write(Buffer.concat([length, bytes]))
    })
    socket.on('data', (chunk) => {
      chunks.push(chunk)
      size += chunk.length
      // One message was asked for, and its length has two bytes: more than that is not kept.
      if (size < LENGTH_BYTES) return
      const whole = Buffer.concat(chunks)
      const messageEnd = LENGTH_BYTES + whole.readUInt16BE(0)
      if (size < messageEnd) return
      const message = whole.subarray(LENGTH_BYTES, messageEnd)
      const answer = answerTo(question, message)
      const isWhole = answer !== undefined && !answer.isTruncated
      end(isWhole ? { message, answer } : 'the validating resolver gave no usable answer')
    })
  })
}

/** An answer without its question cannot be told from one to another question, and is no answer. */
function answerTo(question: Question, message: Buffer): DnsMessage | undefined {
  const answer = readAnswer(message)
  if (answer === undefined || answer.id !== question.id) return undefined
  const isAsked = answer.question?.name === question.name && answer.question.type === TYPES[question.type]
  return isAsked ? answer : undefined
}

function reasonOf(error: Error): string {
  return errorCode(error) === 'ECONNREFUSED' ? 'the validating resolver could not be reached' : errorText(error)
}
