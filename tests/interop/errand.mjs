// What every client has to be able to do with the hub, for the scripts in JavaScript. errand.py is the same in Python.
//
// Both TypeScript SDKs have the same verbs, so one errand serves both: a script hands over how to connect.

import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';

const { NEXUS_BIN, NEXUS_MCP, NEXUS_SSE, NEXUS_KEY, NEXUS_DATA, NEXUS_TEST_CACHE, TMPDIR } = process.env;
export const hub = { bin: NEXUS_BIN, mcp: new URL(NEXUS_MCP), sse: new URL(NEXUS_SSE), key: NEXUS_KEY, data: NEXUS_DATA };
export const WRONG_KEY = 'x'.repeat(NEXUS_KEY.length);
const FILE = 'smørrebrød list.txt';
const TEXT = 'rye, butter, herring';
const EXPECTED_TOOLS = JSON.parse(readFileSync(new URL('tools.json', import.meta.url)));

/** `require` as a script inside one of the folders of tests/setup.sh would have it. */
export const from = (folder) => createRequire(join(NEXUS_TEST_CACHE, folder, 'here.js'));

let broken = 0;

async function promise(name, work) {
    try {
        const value = await work();
        console.log(`ok   ${name}`);
        return value;
    } catch (problem) {
        broken += 1;
        const code = problem.code === undefined ? '' : ` (code ${problem.code})`;
        console.log(`FAIL ${name}: ${String(problem.message ?? problem).replace(/\s+/g, ' ').slice(0, 2000)}${code}`);
    }
}

export function finish() {
    process.exit(broken ? 1 : 0); // and not later: a client may hold on to sockets
}

function ensure(condition, otherwise) {
    if (!condition) throw new Error(typeof otherwise === 'string' ? otherwise : JSON.stringify(otherwise).slice(0, 1500));
}

const within = (seconds, work) =>
    Promise.race([work, new Promise((_, no) => setTimeout(() => no(new Error(`nothing within ${seconds} s`)), seconds * 1000).unref())]);

const textOf = (result) => result.content.map((part) => part.text ?? '').join('');

function judgeTools(tools) {
    const names = tools.map((tool) => tool.name);
    const missing = Object.keys(EXPECTED_TOOLS).filter((name) => !names.includes(name));
    ensure(!missing.length, `missing ${missing} among ${names}`);
    for (const { name, title, description, inputSchema, annotations } of tools) {
        ensure(title, `${name} has no title`);
        ensure(description, `${name} has no description`);
        ensure(inputSchema?.type === 'object', `${name}: inputSchema is ${JSON.stringify(inputSchema)}`);
        const readOnly = annotations?.readOnlyHint;
        ensure(typeof readOnly === 'boolean', `${name}: annotations are ${JSON.stringify(annotations)}`);
        if (name in EXPECTED_TOOLS) ensure(readOnly === (EXPECTED_TOOLS[name] === 'read'), `${name}: readOnlyHint is ${readOnly}`);
    }
}

function judgeReading(result, expected) {
    ensure(!result.isError, result);
    ensure(JSON.stringify(result.structuredContent ?? null).includes(expected), result);
    ensure(textOf(result).includes(expected), result);
}

function judgePending(result, path) {
    ensure(result.isError === true, result);
    ensure(result.structuredContent?.status === 'approval_required', result);
    ensure(result.structuredContent.action?.tool === 'write_file', result);
    ensure(textOf(result).includes('approval_required'), result);
    ensure(!existsSync(path), 'the file was written');
}

/** `versions`: the protocol versions this connection may end up with. */
export async function errand(name, client, transport, { versions, versionOf }) {
    const folder = join(TMPDIR, 'a folder');
    mkdirSync(folder, { recursive: true });
    writeFileSync(join(folder, FILE), `${TEXT}\n`);
    const call = (tool, args) => within(30, client.callTool({ name: tool, arguments: args }));

    const connected = await promise(`${name}: connects`, async () => {
        await within(30, client.connect(transport));
        return true;
    });
    if (!connected) return;
    await promise(`${name}: speaks ${versions.join(' or ')}`, () => ensure(versions.includes(versionOf()), `speaks ${versionOf()}`));
    await promise(`${name}: gets instructions`, () => ensure(client.getInstructions(), 'there are none'));
    await promise(`${name}: lists the tools`, async () => judgeTools((await within(30, client.listTools())).tools));
    await promise(`${name}: reads a folder`, async () => judgeReading(await call('list_directory', { path: folder }), FILE));
    await promise(`${name}: reads many files at once`, async () => {
        const paths = Array.from({ length: 16 }, (_, number) => join(folder, `${number}.txt`));
        paths.forEach((path, number) => writeFileSync(path, `${TEXT} ${number}.`));
        const replies = await Promise.all(paths.map((path) => call('read_file', { path })));
        replies.forEach((reply, number) => judgeReading(reply, `${TEXT} ${number}.`));
    });
    await promise(`${name}: a write waits for a human`, async () => {
        const path = join(folder, 'written');
        judgePending(await call('write_file', { path, content: 'no' }), path);
    });
    await promise(`${name}: a wrong argument is the model's to mend`, async () => {
        const result = await call('list_directory', { path: 5 });
        ensure(result.isError === true && textOf(result), result);
    });
    await promise(`${name}: an unknown tool is a protocol error`, async () => {
        const answer = await call('no_such_tool', {}).catch((error) => error);
        ensure(answer instanceof Error && answer.code === -32602, answer instanceof Error ? `${answer.code} ${answer.message}` : answer);
    });
    await promise(`${name}: leaves`, () => within(10, client.close()));
}

/** A person for a client that can ask one: answers with what `says` holds, and remembers what it was asked. */
export const person = () => {
    const me = { says: 'no', asked: [] };
    me.answer = async (request) => {
        me.asked.push(request.params.message);
        return { action: 'accept', content: { decision: me.says } };
    };
    return me;
};

/** A client that asks `someone`: a write asks and does what they say, and after a yes to all nothing is asked any more. */
export async function asking(name, client, transport, someone) {
    const folder = join(TMPDIR, 'a folder');
    mkdirSync(folder, { recursive: true });
    const path = join(folder, 'asked');
    const write = async (says) => {
        someone.says = says;
        rmSync(path, { force: true });
        const before = someone.asked.length;
        const result = await within(30, client.callTool({ name: 'write_file', arguments: { path, content: says } }));
        return { result, asked: someone.asked.slice(before), written: existsSync(path) };
    };
    await promise(`${name}: a write asks, runs after yes and is free afterwards`, async () => {
        await within(30, client.connect(transport));
        const no = await write('no');
        ensure(no.result.isError && !no.written && no.asked.length === 1, no);
        ensure(no.asked[0].includes('write_file') && no.asked[0].includes(path), no);
        ensure(textOf(no.result).includes('the operator said no'), no);
        for (const says of ['once', 'session']) {
            const yes = await write(says);
            ensure(!yes.result.isError && yes.written && yes.asked.length === 1, yes);
        }
        const free = await write('no');
        ensure(!free.result.isError && free.written && free.asked.length === 0, free);
        await within(30, client.callTool({ name: 'revoke_writes', arguments: {} }));
        const locked = await write('no');
        ensure(locked.result.isError && locked.asked.length === 1, locked);
        await within(10, client.close());
    });
}

export async function shutOut(name, client, transport) {
    await promise(`${name}: is shut out`, async () => {
        const answer = await within(15, client.connect(transport)).then(() => 'got in', (error) => error);
        ensure(answer instanceof Error && !answer.message.startsWith('nothing within'), String(answer.message ?? answer));
        await client.close().catch(() => {});
    });
}
