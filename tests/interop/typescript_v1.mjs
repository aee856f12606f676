// The TypeScript SDK, version 1: Streamable HTTP, HTTP+SSE and stdio, all in the old era (it knows no other).

import { asking, errand, finish, from, hub, person, shutOut, WRONG_KEY } from './errand.mjs';

const require = from(process.argv[2]);
const { Client } = require('@modelcontextprotocol/sdk/client/index.js');
const { StreamableHTTPClientTransport } = require('@modelcontextprotocol/sdk/client/streamableHttp.js');
const { SSEClientTransport } = require('@modelcontextprotocol/sdk/client/sse.js');
const { StdioClientTransport } = require('@modelcontextprotocol/sdk/client/stdio.js');

const { ElicitRequestSchema } = require('@modelcontextprotocol/sdk/types.js');

const client = () => new Client({ name: 'interop-typescript-v1', version: '1.0.0' });
const withKey = (key) => ({ requestInit: { headers: key ? { Authorization: `Bearer ${key}` } : {} } });
const http = (key) => new StreamableHTTPClientTransport(hub.mcp, withKey(key));
const sse = (key) => new SSEClientTransport(hub.sse, withKey(key));
const stdio = () => new StdioClientTransport({ command: hub.bin, args: ['stdio', '--data', hub.data], stderr: 'ignore' });

// Version 1 keeps the agreed version to itself, but tells it to a transport that wants to know.
function watched(transport) {
    let version;
    transport.setProtocolVersion = ((tell) => (agreed) => {
        version = agreed;
        tell?.call(transport, agreed);
    })(transport.setProtocolVersion);
    return { transport, versionOf: () => version };
}

for (const [name, plain, versions] of [
    ['TypeScript v1, HTTP', http(hub.key), ['2025-11-25']],
    ['TypeScript v1, SSE', sse(hub.key), ['2025-11-25', '2024-11-05']],
    ['TypeScript v1, stdio', stdio(), ['2025-11-25']],
]) {
    const { transport, versionOf } = watched(plain);
    await errand(name, client(), transport, { versions, versionOf });
}
for (const [name, transport] of [
    ['TypeScript v1, HTTP', http(hub.key)],
    ['TypeScript v1, SSE', sse(hub.key)],
    ['TypeScript v1, stdio', stdio()],
]) {
    const me = new Client({ name: 'interop-typescript-v1', version: '1.0.0' }, { capabilities: { elicitation: {} } });
    const someone = person();
    me.setRequestHandler(ElicitRequestSchema, someone.answer);
    await asking(name, me, transport, someone);
}
for (const [what, key] of [['a wrong key', WRONG_KEY], ['no key', undefined]]) {
    await shutOut(`TypeScript v1, HTTP, ${what}`, client(), http(key));
    await shutOut(`TypeScript v1, SSE, ${what}`, client(), sse(key));
}
finish();
