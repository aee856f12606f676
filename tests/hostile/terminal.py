#!/usr/bin/env python3
"""Sits at a terminal: runs a program there, types when it shows what is waited for, and prints all that it showed.

    terminal.py PROGRAM [ARG…]          stdin: a JSON list of [EXPECTED, TYPED]

Waits until EXPECTED was shown since the last thing typed, then types TYPED and Enter; "^C" is Ctrl-C, null is only waited
for. At the end it waits for the program. Exits with the program's code, or with 99 where the wait was too long.
"""

import json
import os
import pty
import re
import select
import sys
import time

DEADLINE = 15

# What a terminal is told to do, and one thing that it is asked: where the cursor is.
ESCAPE = re.compile(rb"\x1b\[[0-9;?<>=]*[a-zA-Z]|\x1b[()][A-Z0-9]|\x1b\][^\x07]*\x07|\x1b[=>78]")
WHERE = b"\x1b[6n"


class Terminal:
    def __init__(self, argv):
        self.shown, self.waiting_from, self.is_over = b"", 0, False
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.execvpe(argv[0], argv, {**os.environ, "TERM": "xterm"})

    def look(self):
        """Reads what there is, for at most a little while."""
        if not select.select([self.fd], [], [], 0.1)[0]:
            return
        try:
            piece = os.read(self.fd, 65536)
        except OSError:
            piece = b""
        if not piece:
            self.is_over = True
        for _ in range(piece.count(WHERE)):
            os.write(self.fd, b"\x1b[1;1R")
        self.shown += ESCAPE.sub(b"", piece)

    def until(self, so):
        ends = time.monotonic() + DEADLINE
        while not so() and not self.is_over:
            if time.monotonic() > ends:
                return False
            self.look()
        return True

    def expect(self, words):
        found = lambda: self.shown.find(words.encode(), self.waiting_from)
        if not self.until(lambda: found() >= 0) or found() < 0:
            self.end(99, f"\n--- never shown: {words}")
        self.waiting_from = found() + len(words.encode())

    def type(self, words):
        self.waiting_from = len(self.shown)
        if words == "^C":
            os.write(self.fd, b"\x03")
            return
        # The line is painted anew when it is typed and when it is ended: what comes behind that is the answer.
        os.write(self.fd, words.encode())
        self.expect(words)
        self.waiting_from = len(self.shown)
        os.write(self.fd, b"\r")
        self.expect("\n")

    def end(self, code, words=""):
        print(self.shown.decode(errors="replace").replace("\r", ""), words)
        if not self.is_over:
            os.kill(self.pid, 9)
        sys.exit(code)


def main():
    terminal = Terminal(sys.argv[1:])
    for expected, typed in json.load(sys.stdin):
        terminal.expect(expected)
        if typed is not None:
            terminal.type(typed)
    if not terminal.until(lambda: terminal.is_over):
        terminal.end(99, "\n--- it does not end")
    terminal.end(os.waitstatus_to_exitcode(os.waitpid(terminal.pid, 0)[1]))


if __name__ == "__main__":
    main()
