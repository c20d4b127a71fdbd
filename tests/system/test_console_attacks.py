"""What strangers and other sites can do to the console: paths, Host headers, chosen cookies, and what its answers allow."""
import http.client
import json
import socket
import urllib.parse

import pytest

from test_observe import OBSERVE, Browser
from tuft_server import ALICE


@pytest.mark.parametrize("path", ["/console/../etc/passwd", "/console/%2e%2e/%2e%2e/etc/passwd",
                                  "/console/..%2f..%2fetc%2fpasswd", "/console//etc/passwd", "/console/assets/../../x",
                                  "/console/assets/%00", "/console/%0d%0aSet-Cookie:%20a=b", "/console/\\..\\..\\x"])
def test_a_path_leads_nowhere_else(server, path):
    host = urllib.parse.urlsplit(server.url)
    with socket.create_connection((host.hostname, host.port), timeout=20) as one:
        one.sendall(f"GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n".encode())
        answer = b"".join(iter(lambda: one.recv(65536), b""))
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"root:" not in body and b"set-cookie" not in head.lower(), path
    assert int(head.split()[1]) in (200, 400, 404), path
    if head.split()[1] == b"200":
        assert b"<!doctype html>" in body.lower(), "a page of the console"


def test_a_host_is_not_believed(server):
    host = urllib.parse.urlsplit(server.url)
    for name in ("evil.example/x", "evil.example@x", "a b", "\"><script>", "evil.example:99999999"):
        connection = http.client.HTTPConnection(host.hostname, host.port, timeout=20)
        connection.request("GET", "/", headers={"Host": name})
        answer = connection.getresponse()
        answer.read()
        assert answer.status == 400 or answer.getheader("Location") == "http://localhost/console", name


def test_a_session_is_never_one_that_was_chosen_before(server):
    browser = Browser(server)
    chosen = "tuft_console=" + "a" * 64
    browser.cookie = chosen
    browser.log_in(ALICE)
    assert browser.cookie != chosen
    fixed = Browser(server)
    fixed.cookie = chosen
    assert fixed.whoami(X_Tuft_Console="1").status == 401
    # Two cookies of the name: one of them was set by somebody else, and none counts.
    fixed.cookie = browser.cookie + "; " + chosen
    assert fixed.whoami(X_Tuft_Console="1").status == 401
    fixed.cookie = "; ".join(f"c{number}=x" for number in range(300)) + "; " + browser.cookie
    assert fixed.whoami(X_Tuft_Console="1").status in (200, 431)


def test_every_answer_of_the_console_has_its_policy_and_no_answer_of_the_api_is_kept(server):
    browser = Browser(server)
    refused = [browser.request("POST", "/console/login", json.dumps({"key": "tml-wrong"})),
               browser.request("POST", "/console/login", json.dumps({"key": ALICE}), Origin="http://evil.example"),
               browser.request("GET", "/console/assets/none.js"), browser.request("GET", "/")]
    login = browser.request("POST", "/console/login", json.dumps({"key": ALICE}))
    cookie = login.getheader("Set-Cookie")
    assert "HttpOnly" in cookie and "SameSite=Strict" in cookie and "Path=/" in cookie
    for answer in (*refused, login, browser.request("GET", "/console"),
                   browser.request("POST", "/console/logout", X_Tuft_Console="1")):
        assert answer.getheader("Content-Security-Policy", "").startswith("default-src 'none'"), answer.status
        assert answer.getheader("X-Content-Type-Options") == "nosniff"
    browser.log_in(ALICE)
    for what in ("whoami", "traces", "logs", "metrics", "runs", "sessions", "tenants", "system", "overview"):
        answer = browser.request("GET", OBSERVE + what, X_Tuft_Console="1")
        assert answer.getheader("Cache-Control") == "private, no-store", what
