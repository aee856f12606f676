// The Lua client and the real hub: a turtle that is installed from the hub's own page, driven by all twelve tools over MCP.

import { execFile } from 'node:child_process';
import { promisify } from 'node:util';

import { Computer } from './computer.mjs';

const TOOLS = ['probe-computers', 'list_computers', 'run_lua', 'list_computer_files', 'read_computer_file', 'write_computer_file',
    'list_peripherals', 'call_peripheral', 'turtle', 'get_redstone', 'set_redstone', 'stop_computers'];
const WRITES = ['run_lua', 'write_computer_file', 'call_peripheral', 'turtle', 'set_redstone', 'stop_computers'];

/** MCP by hand: one JSON-RPC message per POST, the answer as JSON or as the last event of a stream. */
export class Mcp {
    constructor(url, key) {
        Object.assign(this, { url, key, session: undefined, ids: 0 });
    }

    async post(message) {
        const answer = await fetch(this.url, {
            method: 'POST',
            headers: {
                Authorization: `Bearer ${this.key}`, 'Content-Type': 'application/json', Accept: 'application/json, text/event-stream',
                ...(this.session && { 'Mcp-Session-Id': this.session }), ...(this.version && { 'MCP-Protocol-Version': this.version }),
            },
            body: JSON.stringify({ jsonrpc: '2.0', ...message }),
            signal: AbortSignal.timeout(60_000),
        });
        this.session ??= answer.headers.get('mcp-session-id') ?? undefined;
        const text = await answer.text();
        if (!answer.ok) throw new Error(`${message.method}: ${answer.status} ${text.slice(0, 300)}`);
        if (message.id === undefined) return undefined;
        const all = (answer.headers.get('content-type') ?? '').includes('event-stream')
            ? text.split('\n').filter((line) => line.startsWith('data:') && line.length > 6).map((line) => JSON.parse(line.slice(5)))
            : [JSON.parse(text)];
        const reply = all.find(({ id }) => id === message.id);
        if (!reply || reply.error) throw new Error(`${message.method}: ${JSON.stringify(reply?.error ?? text).slice(0, 500)}`);
        return reply.result;
    }

    request(method, params = {}) {
        return this.post({ id: ++this.ids, method, params });
    }

    async start() {
        const { protocolVersion } = await this.request('initialize', {
            protocolVersion: '2025-11-25', capabilities: {}, clientInfo: { name: 'lua-client-test', version: '1.0.0' },
        });
        this.version = protocolVersion;
        await this.post({ method: 'notifications/initialized' });
        return this;
    }

    call(name, args = {}) {
        return this.request('tools/call', { name, arguments: args });
    }
}

export async function run({ promise, ensure, same, until, shows, WebSocket, env }) {
    const links = env.NEXUS_LINK ?? env.NEXUS_LINKS;
    const mcp = env.NEXUS_MCP_URL ?? env.NEXUS_MCP;
    if (!links || !mcp || !env.NEXUS_KEY) {
        return promise('the real hub says where computers link', () => ensure(false, 'NEXUS_LINKS, NEXUS_MCP or NEXUS_KEY is not set'));
    }
    // Linked to from here, whatever it listens on.
    const address = `127.0.0.1:${new URL(links).port}`;

    // With NEXUS_BIN and NEXUS_DATA a key is made that needs no human for these tools; else NEXUS_KEY has to be one.
    const asking = await new Mcp(mcp, env.NEXUS_KEY).start();
    let key = env.NEXUS_KEY;
    if (env.NEXUS_BIN && env.NEXUS_DATA) {
        const how = ['key', 'new', 'lua', ...WRITES.flatMap((name) => ['--approved', name]), '--data', env.NEXUS_DATA];
        key = (await promisify(execFile)(env.NEXUS_BIN, how)).stdout.trim();
    }
    const model = await new Mcp(mcp, key).start();
    const told = async (name, args) => {
        const result = await model.call(name, args);
        ensure(!result.isError, result);
        return result.structuredContent;
    };
    const text = (result) => result.content.map((part) => part.text ?? '').join('');
    const computer = 4012;

    await promise('real hub: the twelve tools are listed', async () => {
        const names = [];
        for (let cursor; ;) {
            const page = await model.request('tools/list', cursor ? { cursor } : {});
            names.push(...page.tools.map(({ name }) => name));
            if (!(cursor = page.nextCursor)) break;
        }
        same(TOOLS.filter((name) => !names.includes(name)), []);
    });
    await promise('real hub: no computers, and it says so', async () => same(text(await model.call('probe-computers')).trim(), 'No computers connected.'));

    const made = new Computer(WebSocket, { id: computer, label: 'digger', kind: 'turtle', gps: true, fuel: 50, boot: true, files: {} }, { speed: 1 });
    await promise('real hub: `wget run` of its installer links the computer', async () => {
        made.type(`wget run http://${address}/install.lua`);
        await shows(made, 'Nexus is installed');
        await shows(made, `linked to ${address} as ${computer} (digger)`);
    });
    await promise('real hub: probe-computers', async () =>
        same(text(await model.call('probe-computers')).trim(), `pong from ${computer} (Label: digger)`));
    await promise('real hub: list_computers', () => until('its position', async () => {
        const { computers } = await told('list_computers');
        const mine = computers.find(({ id }) => id === computer);
        ensure(mine.label === 'digger' && mine.kind === 'turtle' && mine.fuel === 50, mine);
        return mine.position?.x === 100 && mine.position.y === 64 && mine.position.z === -20;
    }));
    await promise('real hub: run_lua, letters and all', async () => {
        const { output, results, error } = await told('run_lua', { computer, code: 'print("smørrebrød 🐢") sleep(0.1) return #"🐢", nil, {1, "ø"}' });
        same([output, results, error], ['smørrebrød 🐢\n', [4, null, [1, 'ø']], undefined]);
        ensure((await told('run_lua', { computer, code: 'error("boom")' })).error.includes('boom'), 'no error');
        same((await told('run_lua', { computer, code: 'sleep(100)', timeout: 1 })).error, 'stopped after 1 s');
    });
    await promise('real hub: run_lua that never yields is stopped, and the computer stays', async () => {
        ensure((await told('run_lua', { computer, code: 'while true do end', timeout: 30 })).error.includes('without yielding'), 'no error');
        same(text(await model.call('probe-computers')).trim(), `pong from ${computer} (Label: digger)`);
    });
    await promise('real hub: write_computer_file and read_computer_file, over many frames', async () => {
        const content = Array.from({ length: 9000 }, (_, i) => `line ${i} ø🐢\n`).join('');
        await told('write_computer_file', { computer, path: '/notes/long.txt', content });
        let came = '';
        for (let offset = 0; offset !== undefined;) {
            const part = await told('read_computer_file', { computer, path: '/notes/long.txt', offset });
            came += part.content;
            offset = part.next_offset;
        }
        ensure(came === content, `${came.length} of ${content.length} came back`);
        const bytes = Buffer.from([0, 255, 10, 13, 128]).toString('base64');
        await told('write_computer_file', { computer, path: 'b.bin', content: bytes, encoding: 'base64' });
        same((await told('read_computer_file', { computer, path: 'b.bin' })).content, bytes);
        const refused = await model.call('write_computer_file', { computer, path: '/rom/x', content: 'x' });
        ensure(refused.isError && text(refused).includes('read-only'), refused);
    });
    await promise('real hub: list_computer_files', async () => {
        const { entries } = await told('list_computer_files', { computer });
        same(entries.map(({ name, kind }) => `${name} ${kind}`), ['.settings file', 'b.bin file', 'nexus.lua file', 'notes folder', 'rom folder', 'startup folder']);
        await told('run_lua', { computer, code: 'for i = 1, 700 do fs.open(("many/%04d"):format(i), "w").close() end' });
        const many = await told('list_computer_files', { computer, path: '/many' });
        ensure(many.entries.length === 700 || many.more, many.entries.length);
    });
    await promise('real hub: list_peripherals and call_peripheral', async () => {
        const { peripherals } = await told('list_peripherals', { computer });
        same(peripherals.map(({ name }) => name), ['left', 'monitor_3']);
        same((await told('call_peripheral', { computer, name: 'left', method: 'echo', arguments: [1, null, 'ø', { a: [] }] })).results, [1, null, 'ø', { a: {} }]);
        const failed = await model.call('call_peripheral', { computer, name: 'left', method: 'fail' });
        ensure(failed.isError && text(failed).includes('the cell leaks'), failed);
    });
    await promise('real hub: turtle, a chain with fuel and position', async () => {
        const { steps, fuel, position } = await told('turtle', { computer, steps: [{ action: 'forward' }, { action: 'turnRight' }, { action: 'forward', times: 2 }, { action: 'inventory' }] });
        same([steps.length, fuel, position], [5, 47, { x: 101, y: 64, z: -18 }]);
    });
    await promise('real hub: get_redstone and set_redstone', async () => {
        ensure(JSON.stringify(await told('get_redstone', { computer })).includes('7'), 'no input');
        await told('set_redstone', { computer, side: 'top', strength: 11 });
        same((await told('run_lua', { computer, code: 'return redstone.getAnalogOutput("top")' })).results, [11]);
    });
    await promise('real hub: stop_computers ends what runs', async () => {
        const running = model.call('run_lua', { computer, code: 'sleep(30) fs.makeDir("ran")', timeout: 60 });
        await until('the code to run', async () => (await told('run_lua', { computer, code: 'return 1' })).results[0] === 1);
        const stop = await told('stop_computers');
        ensure(JSON.stringify(stop).includes(String(computer)), stop);
        ensure((await running).isError || JSON.stringify(await running).includes('stop'), await running);
        same((await told('run_lua', { computer, code: 'return fs.exists("ran")' })).results, [false]);
    });
    await promise('real hub: without approval a write waits for a human, and nothing runs', async () => {
        const result = await asking.call('run_lua', { computer, code: 'fs.makeDir("unasked")' });
        ensure(result.isError && result.structuredContent?.status === 'approval_required', result);
        same((await told('run_lua', { computer, code: 'return fs.exists("unasked")' })).results, [false]);
    });
    await promise('real hub: a computer that is gone is gone from the list', async () => {
        await made.kill();
        await until('an empty list', async () => text(await model.call('probe-computers')).includes('No computers connected.'));
    });
}
