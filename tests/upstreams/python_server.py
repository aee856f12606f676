"""A server on the Python SDK, both eras: `python_server.py stdio`, or `python_server.py http PORT`."""

import sys
from typing import Annotated

from mcp.server import MCPServer
from mcp.server.mcpserver import AcceptedElicitation, Context, Elicit, ElicitationResult, Resolve
from pydantic import BaseModel

server = MCPServer("python")


class Sum(BaseModel):
    total: int


class Name(BaseModel):
    name: str


@server.tool()
def add(a: int, b: int) -> Sum:
    """Adds two numbers."""
    return Sum(total=a + b)


@server.tool()
async def count(steps: int, context: Context) -> str:
    """Counts, and says how far it is."""
    for step in range(steps):
        await context.report_progress(step + 1, steps, f"step {step + 1}")
    return f"counted to {steps}"


def who() -> Elicit[Name]:
    return Elicit("Who are you?", Name)


@server.tool()
def greet(answer: Annotated[ElicitationResult[Name], Resolve(who)]) -> str:
    """Asks for a name: in the old era while it runs, in the new one by its result."""
    return f"hello {answer.data.name}" if isinstance(answer, AcceptedElicitation) else "hello nobody"


@server.tool()
def fail() -> str:
    """Always fails."""
    raise ValueError("the well is dry")


@server.resource("notes://today")
def today() -> str:
    """What is to be done."""
    return "buy bread"


@server.prompt()
def review(code: str) -> str:
    """Asks for a review."""
    return f"Please review: {code}"


if __name__ == "__main__":
    how, *port = sys.argv[1:]
    server.run("stdio") if how == "stdio" else server.run("streamable-http", host="127.0.0.1", port=int(port[0]))
