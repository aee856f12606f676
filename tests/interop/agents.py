"""Claude Code, Codex and opencode, whole, with a scripted model: set up as a user would, they list the hub's tools and call them.

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

PROGRAMS = dict(zip(("claude", "codex", "opencode"), sys.argv[1:4], strict=True))
STDIO = [BIN, "stdio", "--data", DATA]
AT_HOME = folder()
WRITTEN = os.path.join(AT_HOME, "written")
ASK = "What is in the folder?"


class Agent:
    """One agent with a fresh home, a work folder in it, and a model."""

    program, settings = "", {}

    def __init__(self, model):
        self.home = tempfile.mkdtemp(prefix="agent-")
        self.work = os.path.join(self.home, "work")
        os.mkdir(self.work)
        self.model = model
        self.env = {"HOME": self.home, "PATH": os.environ["PATH"], "LANG": "C.UTF-8", "TMPDIR": self.home, "TERM": "dumb",
                    "NEXUS_KEY": KEY} | self.settings

    def write(self, path, text):
        path = os.path.join(self.home, path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as file:
            file.write(text)

    def type(self, *arguments):
        """What the agent says to this command line."""
        program = os.path.join(CACHE, PROGRAMS[self.program], "node_modules/.bin", self.program)
        done = subprocess.run([program, *arguments], env=self.env, cwd=self.work, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=60)
        self.said = f"{done.stdout}\n{done.stderr}".strip()
        assert done.returncode == 0, f"{' '.join(arguments[:3])}: exit {done.returncode}: {self.said[-1500:]}"
        return done.stdout


class ClaudeCode(Agent):
    name, program = "Claude Code", "claude"
    settings = {"ANTHROPIC_API_KEY": "sk-scripted", "DISABLE_AUTOUPDATER": "1", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
                "ENABLE_TOOL_SEARCH": "false"}  # else the tools of MCP servers are not in the first request

    def add(self, way, key=KEY):
        self.env["ANTHROPIC_BASE_URL"] = self.model.url
        header = ["--header", f"Authorization: Bearer {key}"]
        self.type("mcp", "add", *{"HTTP": ["--transport", "http", "nexus", MCP, *header],
                                  "SSE": ["--transport", "sse", "nexus", SSE, *header],
                                  "stdio": ["nexus", "--", *STDIO]}[way])

    def connected(self):
        listed = self.type("mcp", "list")
        assert "nexus" in listed, listed
        return "Connected" in listed

    def ask(self):
        allowed = f"mcp__nexus__{self.model.calls[0][0]}"
        return json.loads(self.type("-p", ASK, "--allowedTools", allowed, "--output-format", "json"))["result"]


class Codex(Agent):
    name, program = "Codex", "codex"
    settings = {"MODEL_KEY": "x"}

    def add(self, way, key=KEY):
        self.env["NEXUS_KEY"] = key
        self.write(".codex/config.toml", f"""
model = "scripted"
model_provider = "scripted"
approval_policy = "never"
[model_providers.scripted]
name = "scripted"
base_url = "{self.model.url}/v1"
wire_api = "responses"
env_key = "MODEL_KEY"
[features]
plugins = false
apps = false
""")
        self.type("mcp", "add", "nexus", *{"HTTP": ["--url", MCP, "--bearer-token-env-var", "NEXUS_KEY"], "stdio": ["--", *STDIO]}[way])

    connected = None  # it has no command that says so

    def ask(self):
        return self.type("exec", "-c", "mcp_servers.nexus.required=true", "-c", 'mcp_servers.nexus.default_tools_approval_mode="approve"',
                         "--skip-git-repo-check", "--json", ASK)


class Opencode(Agent):
    name, program = "opencode", "opencode"
    settings = {"OPENCODE_DISABLE_AUTOUPDATE": "1", "OPENCODE_DISABLE_MODELS_FETCH": "1", "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
                "OPENCODE_DISABLE_DEFAULT_PLUGINS": "1",
                "NPM_CONFIG_REGISTRY": "http://127.0.0.1:9/"}  # nobody there: it looks for plugins at every start

    def add(self, way, key=KEY):
        self.env["NEXUS_KEY"] = key
        remote = {"type": "remote", "url": MCP, "oauth": False, "headers": {"Authorization": "Bearer {env:NEXUS_KEY}"}}
        options = {"baseURL": f"{self.model.url}/v1", "apiKey": "x"}
        self.write("work/opencode.json", json.dumps({
            "model": "scripted/scripted", "small_model": "scripted/scripted", "share": "disabled", "autoupdate": False,
            "provider": {"scripted": {"npm": "@ai-sdk/openai-compatible", "options": options, "models": {"scripted": {}}}},
            "permission": {"*": "allow"}, "mcp": {"nexus": {"HTTP": remote, "stdio": {"type": "local", "command": STDIO}}[way]}}))

    def connected(self):
        self.type("mcp", "list")
        assert "nexus" in self.said, self.said
        return "✓ nexus" in self.said

    def ask(self):
        return self.type("run", "--format", "json", ASK)


def judge_reading(model, last_word):
    """The agent offered the model all tools, the hub's answer reached the model, and the model's word reached the user."""
    assert model.paths, "the agent never asked the model"
    offered = {name.replace("-", "_") for name in model.offered}  # Codex spells `probe-computers` with an underscore
    missing = [tool for tool in EXPECTED_TOOLS if not any(name.endswith(tool.replace("-", "_")) for name in offered)]
    assert not missing, f"the model was not offered {missing} but {sorted(model.offered)}"
    assert model.answers and FILE in model.answers[-1], f"the tool's answer, as the model got it: {model.answers}"
    assert FILE in last_word, f"the agent's last word: {last_word[-1500:]}"


def judge_waiting(model):
    """The write did not happen, and the model reads what to do: from the hub where the agent cannot ask anybody, else
    after the agent itself has dismissed or declined the question, as one without a person before it does."""
    assert model.answers, "the tool never answered"
    said = model.answers[-1]
    assert "approval_required" in said or ("counts as no" in said and "nexus approve" in said), \
        f"the tool's answer, as the model got it: {model.answers}"
    assert not os.path.exists(WRITTEN), "the file was written"


def script(tool, **arguments):
    return ScriptedModel((tool, arguments))


for kind, ways in ((ClaudeCode, ("HTTP", "SSE", "stdio")), (Codex, ("HTTP", "stdio")), (Opencode, ("HTTP", "stdio"))):
    for way in ways:
        with script("list_directory", path=AT_HOME) as model:
            agent = kind(model)
            with promise(f"{kind.name}, {way}: lists the tools and calls one"):
                agent.add(way)
                judge_reading(model, agent.ask())
            if agent.connected:
                with promise(f"{kind.name}, {way}: says that it is connected"):
                    assert agent.connected(), agent.said

    with script("write_file", path=WRITTEN, content="no") as model, promise(f"{kind.name}: the model reads that a write waits for a human"):
        agent = kind(model)
        agent.add("HTTP")
        agent.ask()
        judge_waiting(model)

    with script("list_directory", path=5) as model, promise(f"{kind.name}: the model reads what is wrong with an argument"):
        agent = kind(model)
        agent.add("HTTP")
        agent.ask()
        assert model.answers and "path" in model.answers[-1] and "-32602" not in model.answers[-1], \
            f"the tool's answer, as the model got it: {model.answers}"

    with script("list_directory", path=AT_HOME) as model, promise(f"{kind.name}, a wrong key: is shut out"):
        agent = kind(model)
        agent.add("HTTP", WRONG_KEY)
        if agent.connected:
            assert not agent.connected(), agent.said
        else:
            try:
                agent.ask()
            except AssertionError:
                pass
        assert not model.offered, f"the model was offered {sorted(model.offered)}"
finish()
