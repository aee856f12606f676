// Runs computer.lua and is the world around it: time, the queue of events, real sockets and real HTTP.

import { spawn } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const HERE = dirname(fileURLToPath(import.meta.url));
const QUEUE = 256; // CC drops what comes beyond, without a word
const LARGEST_MESSAGE = 131_072;
const all = new Set();

const bytes = (text) => Buffer.from(text, 'utf8');
const escape = (text) => {
    let out = '=';
    for (const byte of Buffer.isBuffer(text) ? text : bytes(String(text))) {
        const c = String.fromCharCode(byte);
        out += /[\w./:-]/.test(c) ? c : '%' + byte.toString(16).padStart(2, '0').toUpperCase();
    }
    return out;
};
const unescape = (word) => {
    const parts = [];
    for (let i = 1; i < word.length; i++) {
        if (word[i] === '%') {
            parts.push(parseInt(word.slice(i + 1, i + 3), 16));
            i += 2;
        } else parts.push(word.charCodeAt(i));
    }
    return Buffer.from(parts);
};
const lua = (value) => {
    if (value === null || value === undefined) return 'nil';
    if (typeof value === 'object') return `{${Object.entries(value).map(([k, v]) => `[${lua(k)}]=${lua(v)}`).join(',')}}`;
    if (typeof value !== 'string') return String(value);
    return `"${[...bytes(value)].map((byte) => '\\' + String(byte).padStart(3, '0')).join('')}"`;
};

export class Computer {
    /**
     * @param WebSocket of npm's ws
     * @param scenario what computer.lua is given: id, label, kind, files, settings, boot or files['main.lua'], …
     * @param {{speed?: number, permitted?: () => boolean, old?: boolean}} how `speed` makes its time go faster than ours
     */
    constructor(WebSocket, scenario, { speed = 20, permitted = () => true } = {}) {
        Object.assign(this, { WebSocket, speed, permitted });
        this.screen = [];
        this.errors = [];
        this.overruns = [];
        this.queue = [];
        this.dropped = 0;
        this.sockets = new Map();
        this.timers = new Map();
        this.waiting = false;
        this.exit = null;
        this.files = null;
        this.folder = mkdtempSync(join(tmpdir(), 'nexus-computer-'));
        this.began = Date.now();
        const file = join(this.folder, 'scenario.lua');
        writeFileSync(file, `return ${lua(scenario)}\n`);
        this.process = spawn('lua5.1', [join(HERE, 'computer.lua'), file, String(this.time()), String(speed)], {
            stdio: ['pipe', 'pipe', 'pipe'],
        });
        this.process.stdin.on('error', () => {});
        this.process.on('error', (problem) => this.errors.push(String(problem)));
        this.stderr = '';
        this.process.stderr.on('data', (data) => (this.stderr += data));
        let rest = '';
        this.process.stdout.setEncoding('latin1').on('data', (data) => {
            const lines = (rest + data).split('\n');
            rest = lines.pop();
            for (const line of lines) this.told(line.split(' '));
        });
        this.gone = new Promise((done) => this.process.on('close', done)).then(() => this.end());
        all.add(this);
    }

    time() {
        return Math.floor(this.began + (Date.now() - this.began) * this.speed);
    }

    told([what, id, ...rest]) {
        switch (what) {
            case 'wait':
                this.waiting = true;
                return this.feed();
            case 'timer':
                return this.timers.set(id, setTimeout(() => {
                    this.timers.delete(id);
                    this.push(`timer ${id}`);
                }, (Number(rest[0]) * 1000) / this.speed));
            case 'cancel':
                clearTimeout(this.timers.get(id));
                return this.timers.delete(id);
            case 'queue':
                return this.push(`queued ${id}`);
            case 'open':
                return this.open(id, unescape(rest[0]).toString());
            case 'send':
                return this.sockets.get(id)?.send(unescape(rest[0]).toString());
            case 'close':
                this.sockets.get(id)?.close();
                return this.sockets.delete(id);
            case 'get':
                return this.get(id, unescape(rest[0]).toString());
            case 'screen':
                return this.screen.push(unescape(rest[0]).toString('latin1'));
            case 'error':
                return this.errors.push(unescape(rest[0]).toString('latin1'));
            case 'overrun':
                return this.overruns.push(Number(id));
            case 'exit':
                this.exit = id;
                return;
            case 'file':
                return this.dumping.set(unescape(id).toString(), unescape(rest[0]).toString());
            case 'folder':
                return this.dumping.set(unescape(id).toString() + '/', null);
            case 'dumped':
                return this.dumpDone(this.dumping);
        }
    }

    push(line) {
        if (this.queue.length >= QUEUE) return void this.dropped++;
        this.queue.push(line);
        this.feed();
    }

    feed() {
        if (!this.waiting || this.queue.length === 0) return;
        this.waiting = false;
        this.process.stdin.write(`${this.time()} ${this.queue.shift()}\n`);
    }

    open(id, url) {
        if (!this.permitted(url)) return this.push(`failed ${id} ${escape('Domain not permitted')}`);
        const socket = new this.WebSocket(url, {
            perMessageDeflate: false, maxPayload: LARGEST_MESSAGE, headers: { 'User-Agent': 'computercraft/1.113.1' },
        });
        this.sockets.set(id, socket);
        let opened = false;
        socket.on('open', () => {
            opened = true;
            this.push(`opened ${id}`);
        });
        socket.on('message', (data, binary) => this.push(`message ${id} ${escape(data)} ${binary ? 1 : 0}`));
        socket.on('error', () => {});
        socket.on('close', (code, reason) => {
            this.sockets.delete(id);
            if (opened) this.push(`closed ${id} ${escape(reason)} ${code}`);
            else this.push(`failed ${id} ${escape('Could not connect')}`);
        });
    }

    async get(id, url) {
        try {
            const answer = await fetch(url, { signal: AbortSignal.timeout(10_000) });
            const body = Buffer.from(await answer.arrayBuffer());
            if (answer.ok) this.push(`got ${id} ${answer.status} ${escape(body)}`);
            else this.push(`missed ${id} ${escape(answer.statusText || String(answer.status))}`);
        } catch {
            this.push(`missed ${id} ${escape('Could not connect')}`);
        }
    }

    /** What a person types, ended with Enter. */
    type(line) {
        this.push(`event =typed ${escape(line)}`);
    }

    event(name, ...values) {
        this.push(['event', escape(name), ...values.map(escape)].join(' '));
    }

    label(text) {
        this.push(text === null ? 'label' : `label ${escape(text)}`);
    }

    /** All files with their contents; a folder ends in a slash. */
    dump() {
        this.dumping = new Map();
        return new Promise((done) => {
            this.dumpDone = (files) => done(Object.fromEntries(files));
            this.push('dump');
        });
    }

    /** As a chunk that is unloaded: at once, with no word to anybody. */
    kill() {
        this.process.kill('SIGKILL');
        for (const socket of this.sockets.values()) socket.terminate();
        return this.gone;
    }

    end() {
        for (const timer of this.timers.values()) clearTimeout(timer);
        for (const socket of this.sockets.values()) socket.terminate();
        this.timers.clear();
        rmSync(this.folder, { recursive: true, force: true });
        all.delete(this);
    }
}

export const endAll = () => Promise.all([...all].map((computer) => computer.kill()));
