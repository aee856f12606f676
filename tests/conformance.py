#!/usr/bin/env python3
"""The official conformance suite: its server scenarios against a hub that serves its fixtures (tests/with_hub.py
--conformance), or its client scenarios against the library's own client (crates/nexus-mcp/examples/conformance_client.rs).

    conformance.py SUITE_FOLDER REVISION                          the folder is one of tests/setup.sh
    conformance.py SUITE_FOLDER REVISION CLIENT                   CLIENT is the program that plays the client

The suite's exit code decides. A line per scenario, `ok   …` or `FAIL …`, with what was found under it; scenarios that the
revision does not score (extensions we do not have, for one) are told, not counted. It has no way to send a key: --conformance lets loopback in.
"""

import glob
import json
import os
import re
import subprocess
import sys
import tempfile

suite, revision = sys.argv[1:3]
client = sys.argv[3] if len(sys.argv) > 3 else None
side, under_test = ("client", ["--command", client]) if client else ("server", ["--url", os.environ["NEXUS_MCP"]])
folder, title = ("", f"client {revision}") if client else ("server-", revision)
program = os.path.join(os.environ["NEXUS_TEST_CACHE"], suite, "node_modules/@modelcontextprotocol/conformance/dist/index.js")
results = tempfile.mkdtemp()
done = subprocess.run(["node", program, side, *under_test, "--requirements", revision, "-o", results],
                      stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def findings(scenario):
    for path in glob.glob(os.path.join(results, f"{folder}{glob.escape(scenario)}-20*", "checks.json")):
        with open(path) as file:
            for check in json.load(file):
                if check.get("status") == "FAILURE":
                    yield f"         {check['id']}: {check.get('errorMessage') or check.get('description')}"
                    if details := check.get("details"):
                        yield f"         {json.dumps(details, ensure_ascii=False)[:1500]}"


_, _, summary = done.stdout.partition("SUMMARY ===")
unscored = set(re.findall(r"^\s+✗ (\S+) \(", summary, re.MULTILINE))
scenarios = re.findall(r"^[✓✗] (\S+): (\d+) passed, (\d+) failed", summary, re.MULTILINE)
bad = 0
for name, passed, failed in scenarios:
    if not int(failed):
        if int(passed):
            print(f"ok   {title} {name}: {passed} checks")
        continue
    bad += name not in unscored
    print(f"{'not scored:' if name in unscored else 'FAIL'} {title} {name}: {failed} of {int(passed) + int(failed)} checks failed")
    print(*findings(name), sep="\n")
if not scenarios or (done.returncode and not bad):
    print(f"FAIL {title} the suite itself: exit {done.returncode}", *done.stdout.splitlines()[-25:], sep="\n")
elif total := re.search(r"^Total: .*$", summary, re.MULTILINE):
    failing = f"; failing but not scored: {', '.join(sorted(unscored))}" if unscored else ""
    print(f"note: {title}: {total[0].lower()} in {len(scenarios)} scenarios{failing}")
sys.exit(1 if done.returncode or not scenarios else 0)
