#!/usr/bin/env python3
"""The official conformance suite against a hub that serves its fixtures (tests/with_hub.py --conformance).

    conformance.py SUITE_FOLDER REVISION                          the folder is one of tests/setup.sh

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
program = os.path.join(os.environ["NEXUS_TEST_CACHE"], suite, "node_modules/@modelcontextprotocol/conformance/dist/index.js")
results = tempfile.mkdtemp()
done = subprocess.run(["node", program, "server", "--url", os.environ["NEXUS_MCP"], "--requirements", revision, "-o", results],
                      stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def findings(scenario):
    for path in glob.glob(os.path.join(results, f"server-{glob.escape(scenario)}-20*", "checks.json")):
        with open(path) as file:
            for check in json.load(file):
                if check.get("status") == "FAILURE":
                    yield f"         {check['id']}: {check.get('errorMessage') or check.get('description')}"
                    if details := check.get("details"):
                        yield f"         {json.dumps(details, ensure_ascii=False)[:1500]}"


before, _, summary = done.stdout.partition("=== SUMMARY ===")
unscored = set(re.findall(r"^\s+✗ (\S+) \(", summary, re.MULTILINE))
scenarios = re.findall(r"^[✓✗] (\S+): (\d+) passed, (\d+) failed", summary, re.MULTILINE)
bad = 0
for name, passed, failed in scenarios:
    if not int(failed):
        if int(passed):
            print(f"ok   {revision} {name}: {passed} checks")
        continue
    bad += name not in unscored
    print(f"{'not scored:' if name in unscored else 'FAIL'} {revision} {name}: {failed} of {int(passed) + int(failed)} checks failed")
    print(*findings(name), sep="\n")
if not scenarios or (done.returncode and not bad):
    print(f"FAIL {revision} the suite itself: exit {done.returncode}", *done.stdout.splitlines()[-25:], sep="\n")
elif total := re.search(r"^Total: .*$", summary, re.MULTILINE):
    failing = f"; failing but not scored: {', '.join(sorted(unscored))}" if unscored else ""
    print(f"note: {revision}: {total[0].lower()} in {len(scenarios)} scenarios{failing}")
sys.exit(1 if done.returncode or not scenarios else 0)
