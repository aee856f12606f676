// What the checks of the Lua client share: how a check is told, a hub as the contract has it, and computers to link to it.

import { readdirSync, readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { createRequire } from 'node:module';
import { dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';

import { Computer } from './computer.mjs';

const HERE = dirname(fileURLToPath(import.meta.url));
export const env = process.env;
/** What this run is to do: the words after the folder of npm's `ws`. */
export const words = process.argv.slice(2);
const cache = resolve(env.NEXUS_TEST_CACHE ?? join(HERE, '../../.cache/test'));
const folder = words[0]?.startsWith('ws-') ? words.shift() : readdirSync(cache).find((name) => name.startsWith('ws-'));
export const WebSocket = createRequire(join(cache, folder, 'here.js'))('ws');
const CLIENTS = join(HERE, '../../clients/computercraft');
export const NEXUS = readFileSync(env.NEXUS_LUA ?? join(CLIENTS, 'nexus.lua'), 'utf8');
export const INSTALL = readFileSync(env.NEXUS_INSTALL ?? join(CLIENTS, 'install.lua'), 'utf8');

// Promises

export const outcome = { broken: 0 };

export async function promise(name, work) {
    try {
        await work();
        console.log(`ok   ${name}`);
    } catch (problem) {
        outcome.broken += 1;
        const where = /(client_\w+|real_hub|lua_client)\.mjs:\d+/.exec(problem.stack ?? '')?.[0] ?? '';
        console.log(`FAIL ${name}: ${String(problem.message ?? problem).replace(/\s+/g, ' ').slice(0, 1500)} (${where})`);
    }
}
export function ensure(condition, otherwise) {
    if (!condition) throw new Error(typeof otherwise === 'string' ? otherwise : JSON.stringify(otherwise)?.slice(0, 1200));
}
export const same = (a, b) => ensure(canon(a) === canon(b), `${canon(a)?.slice(0, 500)} is not ${canon(b)?.slice(0, 500)}`);
export const canon = (value) => JSON.stringify(value, (_, v) =>
    v && typeof v === 'object' && !Array.isArray(v) ? Object.fromEntries(Object.entries(v).sort(([a], [b]) => (a < b ? -1 : 1))) : v);
export const pause = (ms) => new Promise((done) => setTimeout(done, ms));
export async function until(what, look, seconds = 15) {
    const end = Date.now() + seconds * 1000;
    for (;;) {
        const found = await look();
        if (found) return found;
        if (Date.now() > end) throw new Error(`not within ${seconds} s: ${what}`);
        await pause(4);
    }
}

// A hub, as the contract has it

export class Hub {
    static async start() {
        const hub = new Hub();
        hub.links = [];
        hub.upgrades = [];
        hub.greets = true;
        hub.refuses = false;
        hub.pages = { '/nexus.lua': NEXUS, '/install.lua': INSTALL };
        hub.tokenNeeded = false;
        hub.http = createServer((request, answer) => {
            const page = hub.pages[request.url];
            if (page === undefined) return answer.writeHead(404).end('no');
            if (page === null) return request.socket.destroy();
            answer.writeHead(200, { 'Content-Type': 'text/plain' });
            answer.end(page.replaceAll('@ADDRESS@', hub.address).replaceAll('@TOKEN_NEEDED@', String(hub.tokenNeeded)));
        });
        hub.server = new WebSocket.Server({ noServer: true, perMessageDeflate: false, maxPayload: 122_880 });
        hub.http.on('upgrade', (request, socket, head) => {
            hub.upgrades.push({ at: Date.now(), url: request.url, headers: request.headers });
            if (hub.refuses) return socket.destroy();
            hub.server.handleUpgrade(request, socket, head, (ws) => hub.links.push(new Link(hub, ws)));
        });
        await new Promise((done) => hub.http.listen(0, '127.0.0.1', done));
        hub.address = `127.0.0.1:${hub.http.address().port}`;
        return hub;
    }

    /** The next link that says hello, after those that were. */
    async link(after = null, seconds = 15) {
        const from = after ? this.links.indexOf(after) + 1 : 0;
        return until('a link that says hello', () => this.links.slice(from).find((link) => link.hellos.length), seconds);
    }

    end() {
        for (const link of this.links) link.ws.terminate();
        this.http.closeAllConnections();
        this.http.close();
    }
}

let requests = 0;
class Link {
    constructor(hub, ws) {
        Object.assign(this, { hub, ws, hellos: [], answers: new Map(), frames: [], closed: null, largest: 0 });
        ws.on('error', () => {});
        ws.on('close', (code) => (this.closed = { code, at: Date.now() }));
        ws.on('message', (data) => {
            const text = data.toString();
            this.largest = Math.max(this.largest, data.length);
            const message = JSON.parse(text);
            this.frames.push({ at: Date.now(), text, message });
            if (message.type === 'hello') {
                this.hellos.push({ at: Date.now(), ...message });
                if (hub.greets) this.tell({ type: 'hello-ok' });
            } else if (message.type === 'response') {
                const known = this.answers.get(message.id) ?? [];
                this.answers.set(message.id, [...known, message]);
            }
        });
    }

    tell(message) {
        // As the hub does it: ASCII only.
        this.ws.send(JSON.stringify(message).replace(/[\x7f-\uffff]/g, (c) => '\\u' + c.charCodeAt(0).toString(16).padStart(4, '0')));
    }

    begin(method, params) {
        const id = `req-${++requests}`;
        this.tell({ type: 'request', id, method, ...(params === undefined ? {} : { params }) });
        return id;
    }

    async answer(id, seconds = 15) {
        return (await until(`an answer to ${id}`, () => this.answers.get(id), seconds))[0];
    }

    ask(method, params, seconds) {
        return this.answer(this.begin(method, params), seconds);
    }

    /** The result of a request that must work. */
    async get(method, params, seconds) {
        const answer = await this.ask(method, params, seconds);
        ensure(answer.ok === true && !('error' in answer), answer);
        return answer.result;
    }

    /** The error of a request that must not. */
    async refusal(method, params, seconds) {
        const answer = await this.ask(method, params, seconds);
        ensure(answer.ok === false && typeof answer.error === 'string', answer);
        return answer.error;
    }

    lua(code, more = {}) {
        return this.get('lua.run', { code, timeout: 10, ...more });
    }
}

export const base64 = (data) => Buffer.from(data).toString('base64');
export const computers = [];

/** A computer that has the client's file and runs it, unless told otherwise. */
export function computer(hub, scenario = {}, how = {}) {
    const files = { 'nexus.lua': NEXUS.replaceAll('@ADDRESS@', hub.address), 'main.lua': 'shell.run("nexus")', ...scenario.files };
    const made = new Computer(WebSocket, { id: 12, ...scenario, files }, { speed: 10, ...how });
    computers.push(made);
    return made;
}

const all = (value) => JSON.stringify(value);
export const shows = (made, text) => until(`"${text}" on the screen: ${all(made.screen)}`, () => made.screen.some((line) => line.includes(text)));
