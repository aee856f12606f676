"""The agent bridge as its users have it: a model that sends and follows, a real worker, and an agent that comes by itself.

    bridge.py                    beside tests/with_hub.py --config tests/agents/nexus.yaml, with the Python SDK

The keys are made as the manual says, `nexus agent` runs work.sh for every task, and everything else goes through MCP, in
either era. A line per promise, as the scripts of tests/interop.
"""

import asyncio
import json
import os
import pathlib
import subprocess
import sys

import httpx2
from mcp import Client, StdioServerParameters, types
from mcp.client.streamable_http import streamable_http_client

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "interop"))
from errand import BIN, DATA, KEY, MCP, finish, promise, running, text_of  # noqa: E402

TEMP = pathlib.Path(os.environ["TMPDIR"])
FOR_AGENTS = {"claim_task", "post_update", "complete_task", "fail_task", "ask_operator", "peek_tasks"}
FOR_MODELS = {"send_message", "pull_updates", "queue_status", "get_task", "list_tasks", "list_targets", "cancel_task",
              "answer_task", "retry_task"}
PATIENCE = 30


def made_key(name, *how):
    """What `nexus key new` prints: the key, once."""
    done = subprocess.run([BIN, "key", "new", name, *how, "--data", DATA], capture_output=True, text=True, timeout=20)
    assert done.returncode == 0, f"nexus key new {name}: {done.stderr[-500:]}"
    return done.stdout.strip()


def worker(key, folder):
    """`nexus agent` with its log, from now to the end of the block."""
    command = [BIN, "agent", "--target", "homelab", "--url", MCP.removesuffix("/mcp"), "--", "/bin/sh", str(HERE / "work.sh")]
    env = {**os.environ, "NEXUS_AGENT_KEY": key, "FOLDER": str(folder)}
    return running(command, env, folder, folder / "worker.log")


class Person:
    """Says yes to the hub's questions, and remembers them."""

    def __init__(self):
        self.asked = []

    async def answer(self, _, params):
        self.asked.append(params.message)
        return types.ElicitResult(action="accept", content={"decision": "once"})


def connected(key, mode, **how):
    http = httpx2.AsyncClient(headers={"Authorization": f"Bearer {key}"}, timeout=90)
    return Client(streamable_http_client(MCP, http_client=http), mode=mode, **how)


async def call(client, tool, arguments=None, fails=False, **how):
    result = (await client.call_tool(tool, arguments or {}, **how)).model_dump(mode="json", by_alias=True, exclude_none=True)
    assert bool(result.get("isError")) == fails, f"{tool}: {json.dumps(result)[:1500]}"
    return text_of(result) if fails else result["structuredContent"]


async def tools_of(client):
    return {tool.name for tool in (await client.list_tools()).tools}


async def follow(client, task, until):
    """Pulls the updates of a task as they come, until one satisfies; all that came."""
    updates, cursor = [], "0"
    async with asyncio.timeout(PATIENCE):
        while not any(until(update) for update in updates):
            page = await call(client, "pull_updates", {"task": task, "cursor": cursor, "wait_seconds": 10})
            updates += page["updates"]
            cursor = page["next_cursor"]
    return updates


def is_kind(kind):
    return lambda update: update["kind"] == kind


def says(words):
    return lambda update: words in update["content"]


async def becomes(client, task, status):
    async with asyncio.timeout(PATIENCE):
        while (found := await call(client, "get_task", {"id": task}))["status"] != status:
            await asyncio.sleep(0.05)
    return found


async def gone(folder, name):
    """Waits for the end of the command that has written its number there."""
    pid = int((folder / f"{name}.pid").read_text())
    async with asyncio.timeout(PATIENCE):
        while pathlib.Path(f"/proc/{pid}").exists():
            await asyncio.sleep(0.02)


class Model:
    """The model's side of the bridge."""

    def __init__(self, era, client, someone, folder):
        self.era, self.client, self.someone, self.folder = era, client, someone, folder

    def promise(self, words):
        return promise(f"{self.era}: {words}")

    async def call(self, tool, arguments=None, **how):
        return await call(self.client, tool, arguments, **how)

    async def send(self, words, **more):
        sent = await self.call("send_message", {"message": words, **more})
        assert sent["queued"] is True, sent
        return sent["id"]

    async def lists(self):
        with self.promise("sees the tools of the sender, and none of the agent's"):
            listed = await tools_of(self.client)
            assert listed >= FOR_MODELS and not listed & FOR_AGENTS, sorted(listed)
            targets = await self.call("list_targets")
            assert "homelab" in json.dumps(targets) and "looks after the machines" in json.dumps(targets), targets

    async def errand(self):
        """The whole of it: sent, watched, asked, answered, done."""
        with self.promise("a task is sent without a question, and its updates come while it runs"):
            task = await self.send(f"errand {self.era}\nwith a second line")
            assert not self.someone.asked, self.someone.asked
            first = await follow(self.client, task, says("step 1"))
            assert [update["id"] for update in first] == sorted({update["id"] for update in first}), first
            assert all(update["message_id"] == task for update in first), first
            running = await self.call("get_task", {"id": task})
            assert running["status"] == "in_progress" and not (self.folder / "go").exists(), running
            status = await self.call("queue_status")
            assert status["in_progress"] == 1 and status["current_task"].startswith("errand"), status
        with self.promise("the same words again are the same task"):
            again = await self.call("send_message", {"message": f"  errand {self.era}\r\nwith a second line "})
            assert (again["queued"], again["reason"], again["id"]) == (False, "duplicate", task), again
        with self.promise("the agent's question comes, and its answer goes back to the command"):
            (self.folder / "go").touch()
            await follow(self.client, task, is_kind("question"))
            asks = await self.call("get_task", {"id": task})
            assert asks["status"] == "input_required", asks
            await self.call("answer_task", {"id": task, "answer": "the second disk", "question_id": asks["question_id"]})
            assert len(self.someone.asked) == 1 and "answer_task" in self.someone.asked[0], self.someone.asked
            assert f"errand {self.era}" in self.someone.asked[0] and "it asks:" in self.someone.asked[0], self.someone.asked
            all_said = await follow(self.client, task, is_kind("complete"))
            assert any(says("told: the second disk")(update) for update in all_said), all_said
        with self.promise("what has ended has its times, its exit code and the tail of what it said"):
            done = await self.call("get_task", {"id": task})
            assert (done["status"], done["exit_code"]) == ("complete", 0), done
            assert "told: the second disk" in done["result"], done
            times = [done[name] for name in ("created_at", "acknowledged_at", "started_at", "completed_at")]
            assert times == sorted(times), done
        return task

    async def cancels(self):
        with self.promise("a cancelled task ends at once, with all it started"):
            task = await self.send(f"hang {self.era}")
            await follow(self.client, task, says("hanging"))
            self.someone.asked.clear()
            await self.call("cancel_task", {"id": task, "reason": "no longer wanted"})
            assert len(self.someone.asked) == 1 and "cancel_task" in self.someone.asked[0], self.someone.asked
            found = await self.call("get_task", {"id": task})
            assert (found["status"], found["reason"]) == ("cancelled", "cancelled by model: no longer wanted"), found
            await gone(self.folder, "hang")
        return task

    async def interrupts(self):
        with self.promise("URGENT ends what runs and comes next; others wait for their turn"):
            running = await self.send(f"hang again {self.era}")
            await follow(self.client, running, says("hanging"))
            waiting = await self.send(f"quick {self.era}")
            urgent = await self.call("send_message", {"message": f"URGENT quick {self.era}"})
            assert (urgent["position"], urgent["stopped"]) == (1, [running]), urgent
            await gone(self.folder, "hang")
            ended = [await becomes(self.client, task, "complete") for task in (urgent["id"], waiting)]
            assert ended[0]["acknowledged_at"] <= ended[1]["acknowledged_at"], ended
            stopped = await self.call("get_task", {"id": running})
            assert stopped["status"] == "cancelled" and urgent["id"] in stopped["reason"], stopped
        with self.promise("a bare STOP ends what runs, and is done itself"):
            running = await self.send(f"hang once more {self.era}")
            await follow(self.client, running, says("hanging"))
            stop = await self.call("send_message", {"message": "STOP"})
            assert stop["stopped"] == [running], stop
            assert (await self.call("get_task", {"id": stop["id"]}))["status"] == "complete"
            await gone(self.folder, "hang")

    async def fails(self):
        with self.promise("a command that fails is an error with its exit code, and is not run again"):
            task = await self.send(f"fail {self.era}")
            found = await becomes(self.client, task, "error")
            assert (found["exit_code"], found["attempts"]) == (3, 1), found

    async def pulls(self):
        with self.promise("pull_updates without arguments goes on where this key stopped"):
            while (page := await self.call("pull_updates"))["more"]:
                pass
            assert (await self.call("pull_updates"))["updates"] == []
            before = page["next_cursor"]
            task = await self.send(f"quick, to be pulled {self.era}")
            await becomes(self.client, task, "complete")
            explicit = await self.call("pull_updates", {"cursor": before})
            own = await self.call("pull_updates")
            assert own["updates"] and own["updates"] == explicit["updates"], (own, explicit)
            assert (await self.call("pull_updates"))["updates"] == []

    async def reads(self, errand, cancelled):
        with self.promise("the whole of it is in the audit: who sent, claimed, said, answered, cancelled, finished"):
            wanted = {"send_message": "model", "answer_task": "model", "cancel_task": "model", "claim_task": "homelab-agent",
                      "post_update": "homelab-agent", "ask_operator": "homelab-agent", "complete_task": "homelab-agent"}
            for tool, who in wanted.items():
                await self.recorded(tool, lambda row, who=who: (row.get("key"), row.get("outcome")) == (who, "ok"))
            said = json.dumps(await self.recorded("answer_task"))
            assert errand in said and "the second disk" in said, said[:1500]
            said = json.dumps(await self.recorded("cancel_task"))
            assert cancelled in said and "no longer wanted" in said, said[:1500]

    async def recorded(self, tool, wanted=bool):
        """The rows of a tool, once there is such a one. Those of reads come a moment later."""
        async with asyncio.timeout(PATIENCE):
            while True:
                rows = (await self.call("get_audit_log", {"tool": tool, "limit": 100}))["rows"]
                if any(wanted(row) for row in rows):
                    return rows
                await asyncio.sleep(0.05)

    async def run(self):
        await self.lists()
        errand = await self.errand()
        cancelled = await self.cancels()
        await self.interrupts()
        await self.fails()
        await self.pulls()
        await self.reads(errand, cancelled)


async def beside(era, mode):
    """A model at a door of its own, which is another process on the same store."""
    with promise(f"{era}: a model at the stdio door sends and follows what the daemon's worker does"):
        someone = Person()
        door = StdioServerParameters(command=BIN, args=["stdio", "--data", DATA, "--config", str(HERE / "nexus.yaml")],
                                     env={"HOME": os.environ["HOME"]})
        async with asyncio.timeout(60), Client(door, mode=mode, elicitation_callback=someone.answer) as model:
            sent = await call(model, "send_message", {"message": f"quick, from beside {era}"})
            assert len(someone.asked) == 1 and "send_message" in someone.asked[0], someone.asked
            said = await follow(model, sent["id"], is_kind("complete"))
            assert any(says(f"done: quick, from beside {era}")(update) for update in said), said


async def pulling(era, model, agent):
    """An agent that comes by itself, as the text for its CLAUDE.md says."""

    def kept(words):
        return promise(f"{era}, an agent with its own key: {words}")

    with kept("sees its six tools and nothing else"):
        assert await tools_of(agent) == FOR_AGENTS, await tools_of(agent)
    with kept("a call that waits gets the task when it is sent"):
        waiting = asyncio.create_task(call(agent, "claim_task", {"wait_seconds": 30}))
        sent = await call(model, "send_message", {"message": f"felt {era}", "target": "nexus:felt", "priority": "high"})
        async with asyncio.timeout(PATIENCE):
            task = (await waiting)["task"]
        assert (task["id"], task["content"], task["priority"], task["sender"]) == (sent["id"], f"felt {era}", "high", "model"), task
    with kept("says what it does, and sees what waits, between its steps"):
        said = await call(agent, "post_update", {"content": f"[New message received: felt {era}]"})
        assert (said["task"], said["status"], said["stop"]) == (sent["id"], "in_progress", False), said
        assert (await call(agent, "peek_tasks"))["waiting"] == 0
        queued = await call(model, "send_message", {"message": f"felt, the next {era}", "target": "nexus:felt"})
        peeked = await call(agent, "peek_tasks")
        assert (peeked["waiting"], peeked["next"][0]["first_line"]) == (1, f"felt, the next {era}"), peeked
    with kept("asks, and waits for the answer"):
        asking = asyncio.create_task(call(agent, "ask_operator", {"question": "Which branch?", "wait_seconds": 30}))
        question = next(filter(is_kind("question"), await follow(model, sent["id"], is_kind("question"))))
        await call(model, "answer_task", {"id": sent["id"], "answer": "main", "question_id": question["id"]})
        async with asyncio.timeout(PATIENCE):
            answered = await asking
        assert (answered["answered"], answered["answer"], answered["status"]) == (True, "main", "in_progress"), answered
    with kept("finishes, and takes the next in order"):
        done = await call(agent, "complete_task", {"task": sent["id"], "result": "merged"})
        assert done["status"] == "complete", done
        assert (await call(model, "get_task", {"id": sent["id"]}))["result"] == "merged"
        task = (await call(agent, "claim_task"))["task"]
        assert task["id"] == queued["id"], task
    with kept("is told to stop by its next word when the task was cancelled"):
        await call(model, "cancel_task", {"id": queued["id"]})
        said = await call(agent, "post_update", {"content": "going on", "task": queued["id"]})
        assert (said["status"], said["stop"]) == ("cancelled", True), said
    with kept("serves its target only, and nothing but tasks"):
        refused = await call(agent, "claim_task", {"target": "homelab"}, fails=True)
        assert "nexus:felt" in refused and "no other" in refused, refused
        try:
            result = await agent.call_tool("send_message", {"message": "to myself"})
        except Exception:
            return
        assert result.is_error, result


async def main():
    keys = {}
    with promise("keys are made for the model and for the agents"):
        keys["model"] = made_key("model", "--approved", "send_message")
        keys["homelab"] = made_key("homelab-agent", "--target", "homelab")
        keys["felt"] = made_key("felt-agent", "--target", "nexus:felt")
    if len(keys) < 3:
        return
    for era, mode in (("old era", "legacy"), ("new era", "auto")):
        folder = TEMP / era.replace(" ", "-")
        folder.mkdir()
        someone = Person()
        with promise(f"{era}: model, worker and agent connect and leave"), worker(keys["homelab"], folder):
            async with asyncio.timeout(150), connected(keys["model"], mode, elicitation_callback=someone.answer) as model:
                await Model(era, model, someone, folder).run()
                async with connected(keys["felt"], mode) as agent:
                    await pulling(era, model, agent)
            await beside(era, mode)
        with promise(f"{era}: the worker's log and its commands know nothing of its key"):
            heard = (folder / "worker.log").read_text() + (folder / "environment").read_text()
            assert keys["homelab"] not in heard, "the key is there"


asyncio.run(main())
finish()
