#!/usr/bin/env python3
"""Runs a command beside the real program, and ends both.

    NEXUS_BIN=target/debug/nexus tests/with_hub.py [--conformance] [--config FILE] [--limit SECONDS] -- COMMAND…

The hub gets a free port, a fresh data folder and a fresh key; the command gets an empty environment with

    NEXUS_BIN  NEXUS_MCP  NEXUS_SSE  NEXUS_KEY  NEXUS_DATA    the program, its two addresses, key and data folder
    NEXUS_TEST_CACHE                                          where tests/setup.sh puts the clients
    HOME  TMPDIR  PATH  LANG                                  the first two in a folder that is removed at the end

Both run in a network namespace that has nothing but loopback where this machine allows one, so a client that calls home
fails here and now. Nothing outlives this script: every process is its child or its grandchild (it adopts orphans), and
all are ended by number, however it ends. Exits like the command, or 1 when the hub did not start or did not stop.
"""

import argparse
import ctypes
import fcntl
import os
import re
import secrets
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time

LIBC = ctypes.CDLL(None, use_errno=True)
SET_PDEATHSIG, SET_CHILD_SUBREAPER = 1, 36
NEW_USER, NEW_NET = 0x10000000, 0x40000000
READY_WITHIN, STOPPED_WITHIN = 20, 15


def only_loopback():
    """Leaves the machine's network behind, or raises; there is no way back."""
    uid, gid = os.getuid(), os.getgid()
    if LIBC.unshare(NEW_NET) != 0:
        if LIBC.unshare(NEW_USER | NEW_NET) != 0:
            raise OSError(ctypes.get_errno(), "unshare")
        for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
            with open(f"/proc/self/{name}", "w") as file:
                file.write(text)
    up, get, put = 1, 0x8913, 0x8914
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        name, flags = struct.unpack("16sh", fcntl.ioctl(any_socket, get, struct.pack("16sh", b"lo", 0)))
        fcntl.ioctl(any_socket, put, struct.pack("16sh", name, flags | up))


def try_only_loopback():
    """Whether it worked, found out by a child first: some kernels allow the first half and not the second."""
    scout = os.fork()
    if scout == 0:
        try:
            only_loopback()
        except OSError:
            os._exit(1)
        os._exit(0)
    if os.waitpid(scout, 0)[1] != 0:
        return False
    only_loopback()
    return True


def die_with_parent():
    LIBC.prctl(SET_PDEATHSIG, signal.SIGKILL)


def children(pid="self"):
    found = []
    for task in os.listdir(f"/proc/{pid}/task"):
        try:
            with open(f"/proc/{pid}/task/{task}/children") as file:
                found += [int(number) for number in file.read().split()]
        except OSError:
            pass
    return found


def end_orphans():
    """Kills whatever the command left running: ending a process hands us its children, so this goes on until none is left."""
    names = []
    while left := children():
        for pid in left:
            try:
                with open(f"/proc/{pid}/cmdline") as file:
                    names.append(file.read().replace("\0", " ").strip()[:100])
                os.kill(pid, signal.SIGKILL)
            except OSError:
                pass
            os.waitpid(pid, 0)
    return [name for name in names if name]


class Hub:
    def __init__(self, program, folder, arguments, environment):
        self.log = os.path.join(folder, "hub.log")
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                [program, "serve", *arguments], env=environment, cwd=folder, stdin=subprocess.DEVNULL,
                stdout=log, stderr=log, start_new_session=True, preexec_fn=die_with_parent)

    def addresses(self):
        """What the ready line says, once it is there."""
        deadline = time.monotonic() + READY_WITHIN
        while time.monotonic() < deadline:
            if ready := re.search(r"^nexus ready (.+)$", self.said(), re.MULTILINE):
                return dict(part.split("=", 1) for part in ready[1].split() if "=" in part)
            if self.process.poll() is not None:
                raise RuntimeError(f"the hub ended with {self.process.returncode} before it was ready")
            time.sleep(0.02)
        raise RuntimeError(f"the hub said no `nexus ready …` line within {READY_WITHIN} s")

    def said(self):
        with open(self.log, errors="replace") as file:
            return file.read()

    def stop(self):
        """Why it did not end as it should, or None."""
        if self.process.poll() is not None:
            return f"it had ended by itself with {self.process.returncode}"
        self.process.terminate()
        try:
            code = self.process.wait(STOPPED_WITHIN)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            return f"still there {STOPPED_WITHIN} s after SIGTERM"
        return None if code == 0 else f"exit {code} after SIGTERM"


def run(command, limit, **how):
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True, preexec_fn=die_with_parent, **how)
    try:
        return process.wait(limit)
    except subprocess.TimeoutExpired:
        print(f"FAIL {os.path.basename(command[-1])}: not done within {limit} s")
        return 1
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def stop_asked(number, _frame):
    raise KeyboardInterrupt(number)


def main():
    parser = argparse.ArgumentParser(usage="with_hub.py [--conformance] [--config FILE] [--limit SECONDS] -- COMMAND…")
    parser.add_argument("--conformance", action="store_true")
    parser.add_argument("--config", type=os.path.abspath)
    parser.add_argument("--limit", type=float, default=120)
    parser.add_argument("command", nargs="+")
    asked = parser.parse_args()
    program, cache = os.path.abspath(os.environ["NEXUS_BIN"]), os.environ["NEXUS_TEST_CACHE"]

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, stop_asked)
    LIBC.prctl(SET_CHILD_SUBREAPER, 1)
    if not try_only_loopback():
        print("note: this machine allows no network namespace; that nobody leaves loopback is believed, not enforced")

    folder = os.path.realpath(tempfile.mkdtemp(prefix="nexus-test-"))
    hub, code = None, 1
    try:
        home, temp, data = (os.path.join(folder, name) for name in ("home", "tmp", "data"))
        for path in (home, temp, data):
            os.mkdir(path, 0o700)
        clean = {"HOME": home, "TMPDIR": temp, "PATH": os.environ["PATH"], "LANG": "C.UTF-8",
                 "CC_LINK_HOST": "127.0.0.1", "CC_LINK_PORT": "0"}
        key = secrets.token_urlsafe(32)
        arguments = ["--data", data] + ["--conformance"] * asked.conformance + ["--config", asked.config] * bool(asked.config)
        hub = Hub(program, folder, arguments, clean | {"MCP_API_KEY": key, "MCP_PORT": "0", "NEXUS_DATA": data})
        at = hub.addresses()
        code = run(asked.command, asked.limit, cwd=temp, env=clean | {
            "NEXUS_BIN": program, "NEXUS_MCP": at["mcp"], "NEXUS_SSE": at["sse"], "NEXUS_LINKS": at["links"], "NEXUS_KEY": key,
            "NEXUS_DATA": data, "NEXUS_TEST_CACHE": cache, "PYTHONDONTWRITEBYTECODE": "1"})
    except (RuntimeError, OSError, KeyError) as problem:
        print(f"FAIL hub starts: {problem!r}")
    except KeyboardInterrupt as stop:
        code = 128 + (stop.args[0] if stop.args else signal.SIGINT)
    finally:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        if hub:
            if problem := hub.stop():
                print(f"FAIL hub stops: {problem}")
                code = code or 1
            else:
                print("ok   hub stops when asked")
            if code:
                print("--- the hub said", *hub.said().splitlines()[-40:], "---", sep="\n")
        for name in end_orphans():
            print(f"note: left running, ended now: {name}")
        shutil.rmtree(folder, ignore_errors=True)
    sys.exit(code)


if __name__ == "__main__":
    main()
