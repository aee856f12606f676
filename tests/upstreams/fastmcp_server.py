"""A server on FastMCP: `fastmcp_server.py stdio`, or `fastmcp_server.py http PORT`."""

import sys

from fastmcp import Context, FastMCP
from pydantic import BaseModel

server = FastMCP("fastmcp")


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


@server.tool()
async def greet(context: Context) -> str:
    """Asks for a name."""
    answer = await context.elicit("Who are you?", Name)
    return f"hello {answer.data.name}" if answer.action == "accept" else f"hello nobody ({answer.action})"


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
    server.run("stdio", show_banner=False) if how == "stdio" else server.run("http", show_banner=False, host="127.0.0.1", port=int(port[0]))
