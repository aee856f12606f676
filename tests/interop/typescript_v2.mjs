// The TypeScript SDK, version 2: Streamable HTTP and stdio in both eras, HTTP+SSE in the old one.

import { asking, errand, finish, from, hub, person, shutOut, WRONG_KEY } from './errand.mjs';

const require = from(process.argv[2]);
const { Client, StreamableHTTPClientTransport, SSEClientTransport } = require('@modelcontextprotocol/client');
const { StdioClientTransport } = require('@modelcontextprotocol/client/stdio');

const client = (mode) => new Client({ name: 'interop-typescript-v2', version: '2.0.0' }, { versionNegotiation: { mode } });
const withKey = (key) => ({ requestInit: { headers: key ? { Authorization: `Bearer ${key}` } : {} } });
const http = (key) => new StreamableHTTPClientTransport(hub.mcp, withKey(key));
const sse = (key) => new SSEClientTransport(hub.sse, withKey(key));
const stdio = () => new StdioClientTransport({ command: hub.bin, args: ['stdio', '--data', hub.data], stderr: 'ignore' });

for (const [name, mode, transport, versions] of [
    ['TypeScript v2, HTTP, old era', 'legacy', http(hub.key), ['2025-11-25']],
    ['TypeScript v2, HTTP, new era', 'auto', http(hub.key), ['2026-07-28']],
    ['TypeScript v2, SSE', 'legacy', sse(hub.key), ['2025-11-25', '2024-11-05']],
    ['TypeScript v2, stdio, old era', 'legacy', stdio(), ['2025-11-25']],
    ['TypeScript v2, stdio, new era', 'auto', stdio(), ['2026-07-28']],
]) {
    const me = client(mode);
    await errand(name, me, transport, { versions, versionOf: () => me.getNegotiatedProtocolVersion() });
}
for (const [name, mode, transport] of [
    ['TypeScript v2, HTTP, old era', 'legacy', http(hub.key)],
    ['TypeScript v2, HTTP, new era', 'auto', http(hub.key)],
    ['TypeScript v2, stdio, old era', 'legacy', stdio()],
    ['TypeScript v2, stdio, new era', 'auto', stdio()],
]) {
    const capabilities = { elicitation: { form: {} } };
    const me = new Client({ name: 'interop-typescript-v2', version: '2.0.0' }, { versionNegotiation: { mode }, capabilities });
    const someone = person();
    me.setRequestHandler('elicitation/create', someone.answer);
    await asking(name, me, transport, someone);
}
for (const [what, key] of [['a wrong key', WRONG_KEY], ['no key', undefined]]) {
    await shutOut(`TypeScript v2, HTTP, old era, ${what}`, client('legacy'), http(key));
    await shutOut(`TypeScript v2, HTTP, new era, ${what}`, client('auto'), http(key));
    await shutOut(`TypeScript v2, SSE, ${what}`, client('legacy'), sse(key));
}
finish();
