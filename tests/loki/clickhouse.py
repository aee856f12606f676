#!/usr/bin/env python3
"""ClickHouse over HTTP, as far as qryn needs it: the engine is chdb, in this process.

    CHDB_FOLDER/bin/python clickhouse.py FOLDER        says `listening PORT` once it does
"""

import gzip
import sys
import threading
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from chdb import session

ENGINE = session.Session(sys.argv[1])
ONE_AT_A_TIME = threading.Lock()
ENGINE.query("SET output_format_json_quote_64bit_integers = 1")  # nanoseconds are more than a JSON number holds


def run(sql, database, form):
    with ONE_AT_A_TIME:
        if database:
            try:
                ENGINE.query(f"USE `{database}`")
            except Exception:  # the query that makes it names it too
                pass
        try:
            return 200, ENGINE.query(sql, form).bytes() or b""
        except Exception as error:
            return (404 if "UNKNOWN_TABLE" in str(error) else 500), f"Code: 62. DB::Exception: {error}\n".encode()


class Front(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def body(self):
        if (self.headers.get("transfer-encoding") or "") != "chunked":
            return self.rfile.read(int(self.headers.get("content-length") or 0))
        whole = b""
        while size := int(self.rfile.readline().strip() or b"0", 16):
            whole += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return whole

    def answer(self):
        asked = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(self.path).query, keep_blank_values=True))
        body = self.body()
        if self.headers.get("content-encoding") == "gzip":
            body = gzip.decompress(body)
        sql = "\n".join(part for part in (asked.get("query", ""), body.decode(errors="replace")) if part).strip().rstrip(";")
        status, said = run(sql, asked.get("database"), asked.get("default_format") or "TabSeparated") if sql else (200, b"Ok.\n")
        self.send_response(status)
        self.send_header("Content-Type", "text/plain; charset=UTF-8")
        self.send_header("X-ClickHouse-Summary", "{}")
        self.send_header("Content-Length", str(len(said)))
        self.end_headers()
        self.wfile.write(said)

    do_GET = do_POST = do_PUT = answer


server = ThreadingHTTPServer(("127.0.0.1", 0), Front)
print(f"listening {server.server_address[1]}", flush=True)
server.serve_forever()
