"""Claude Code, Codex and opencode, whole, with a scripted model: set up as a user would, they list the hub's tools and call one.

    agents.py CLAUDE_CODE_FOLDER CODEX_FOLDER OPENCODE_FOLDER        each a folder of tests/setup.sh

Every agent has a home of its own and an environment of our making: no account, no history, no settings of this machine.
"""

import json
import os
import subprocess
import sys
import tempfile

from errand import BIN, CACHE, DATA, EXPECTED_TOOLS, FILE, KEY, MCP, SSE, WRONG_KEY, finish, folder, promise
from scripted_llm import ScriptedModel

CLAUDE, CODEX, OPENCODE = (
    os.path.join(CACHE, folder_name, "node_modules/.bin", program)
    for folder_name, program in zip(sys.argv[1:4], ("claude", "codex", "opencode"), strict=True))
AT_HOME = folder()
REMOTE = {"type": "remote", "url": MCP, "oauth": False, "headers": {"Authorization": "Bearer {env:NEXUS_KEY}"}}
ASK = "What is in the folder?"
CODEX_EXEC = ["exec", "-c", "mcp_servers.nexus.required=true", "-c", 'mcp_servers.nexus.default_tools_approval_mode="approve"',
              "--skip-git-repo-check", "--json", ASK]


class Agent:
    """One agent with a fresh home and a work folder in it."""

    def __init__(self, program, **more):
        self.program, self.home = program, tempfile.mkdtemp(prefix="agent-")
        self.work = os.path.join(self.home, "work")
        os.mkdir(self.work)
        self.env = {"HOME": self.home, "PATH": os.environ["PATH"], "LANG": "C.UTF-8", "TMPDIR": self.home, "TERM": "dumb"} | more

    def write(self, path, text):
        path = os.path.join(self.home, path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "a") as file:
            file.write(text)

    def __call__(self, *arguments):
        done = subprocess.run([self.program, *arguments], env=self.env, cwd=self.work, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=45)
        self.said = f"{done.stdout}\n{done.stderr}".strip()
        assert done.returncode == 0, f"{' '.join(arguments[:3])}: exit {done.returncode}: {self.said[-1500:]}"
        return done.stdout


def claude_code(model):
    return Agent(CLAUDE, ANTHROPIC_BASE_URL=model.url, ANTHROPIC_API_KEY="sk-scripted", DISABLE_AUTOUPDATER="1",
                 CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC="1",
                 ENABLE_TOOL_SEARCH="false")  # else the tools of MCP servers are not in the first request


def codex(model):
    agent = Agent(CODEX, MODEL_KEY="x", NEXUS_KEY=KEY)
    agent.write(".codex/config.toml", f"""
model = "scripted"
model_provider = "scripted"
approval_policy = "never"
[model_providers.scripted]
name = "scripted"
base_url = "{model.url}/v1"
wire_api = "responses"
env_key = "MODEL_KEY"
[features]
plugins = false
apps = false
""")
    return agent


def opencode(model, server):
    agent = Agent(OPENCODE, OPENCODE_DISABLE_AUTOUPDATE="1", OPENCODE_DISABLE_MODELS_FETCH="1",
                  OPENCODE_DISABLE_LSP_DOWNLOAD="1", OPENCODE_DISABLE_DEFAULT_PLUGINS="1", NEXUS_KEY=KEY,
                  NPM_CONFIG_REGISTRY="http://127.0.0.1:9/")  # nobody there: it looks for plugins at every start
    provider = {"npm": "@ai-sdk/openai-compatible", "options": {"baseURL": f"{model.url}/v1", "apiKey": "x"}, "models": {"scripted": {}}}
    agent.write("work/opencode.json", json.dumps({
        "model": "scripted/scripted", "small_model": "scripted/scripted", "provider": {"scripted": provider}, "share": "disabled",
        "autoupdate": False, "permission": {"*": "allow"}, "mcp": {"nexus": server}}))
    return agent


def judge(model, answer):
    """The agent offered the model all tools, the hub's answer reached the model, and the model's word reached the user."""
    assert model.paths, "the agent never asked the model"
    missing = [tool for tool in EXPECTED_TOOLS if not any(name.endswith(tool) for name in model.offered)]
    assert not missing, f"the model was not offered {missing} but {sorted(model.offered)}"
    assert model.answers and FILE in model.answers[-1], f"the tool's answer, as the model got it: {model.answers}"
    assert FILE in answer, f"the agent's last word: {answer[-1500:]}"


def refuses(agent, *arguments):
    try:
        agent(*arguments)
    except AssertionError:
        return
    raise AssertionError(f"went through: {agent.said[-1500:]}")


def script():
    return ScriptedModel("list_directory", {"path": AT_HOME})


for name, add in (
    ("HTTP", ["--transport", "http", "nexus", MCP, "--header", f"Authorization: Bearer {KEY}"]),
    ("SSE", ["--transport", "sse", "nexus", SSE, "--header", f"Authorization: Bearer {KEY}"]),
    ("stdio", ["nexus", "--", BIN, "stdio", "--data", DATA]),
):
    with script() as model:
        agent = claude_code(model)
        with promise(f"Claude Code, {name}: `claude mcp add` and `claude mcp list` say connected"):
            agent("mcp", "add", *add)
            listed = agent("mcp", "list")
            assert "nexus" in listed and "Connected" in listed, listed
        with promise(f"Claude Code, {name}: lists the tools and calls one"):
            judge(model, json.loads(agent("-p", ASK, "--allowedTools", "mcp__nexus__list_directory", "--output-format", "json"))["result"])

with script() as model, promise("Claude Code, a wrong key: is shut out"):
    agent = claude_code(model)
    agent("mcp", "add", "--transport", "http", "nexus", MCP, "--header", f"Authorization: Bearer {WRONG_KEY}")
    listed = agent("mcp", "list")
    assert "nexus" in listed and "Connected" not in listed, listed

for name, add in (
    ("HTTP", ["nexus", "--url", MCP, "--bearer-token-env-var", "NEXUS_KEY"]),
    ("stdio", ["nexus", "--", BIN, "stdio", "--data", DATA]),
):
    with script() as model, promise(f"Codex, {name}: lists the tools and calls one"):
        agent = codex(model)
        agent("mcp", "add", *add)
        judge(model, agent(*CODEX_EXEC))

with script() as model, promise("Codex, a wrong key: is shut out"):
    agent = codex(model)
    agent.env["NEXUS_KEY"] = WRONG_KEY
    agent("mcp", "add", "nexus", "--url", MCP, "--bearer-token-env-var", "NEXUS_KEY")
    refuses(agent, *CODEX_EXEC)
    assert not model.offered, f"offered {sorted(model.offered)}"

for name, server in (
    ("HTTP", REMOTE),
    ("stdio", {"type": "local", "command": [BIN, "stdio", "--data", DATA]}),
):
    with script() as model:
        agent = opencode(model, server)
        with promise(f"opencode, {name}: `opencode mcp list` says connected"):
            agent("mcp", "list")
            assert "✓ nexus" in agent.said, agent.said
        with promise(f"opencode, {name}: lists the tools and calls one"):
            judge(model, agent("run", "--format", "json", ASK))

with script() as model, promise("opencode, a wrong key: is shut out"):
    agent = opencode(model, REMOTE)
    agent.env["NEXUS_KEY"] = WRONG_KEY
    agent("mcp", "list")
    assert "nexus" in agent.said and "✓ nexus" not in agent.said, agent.said
finish()
