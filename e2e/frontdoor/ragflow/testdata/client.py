"""Calls an executor manager as RAGFlow's self-managed provider does, with the standard
library alone: the health before each run, the same body, the same reading of the answer.

usage: client.py ENDPOINT TOKEN < cases.json > outcomes.json
"""
import base64
import json
import sys
import urllib.error
import urllib.request


def call(method, url, token, body=None, timeout=60):  # the provider gives the health 5 s; this machine may be slow
    request = urllib.request.Request(url, method=method)
    if token:
        request.add_header("Authorization", "Bearer " + token)
    data = None
    if body is not None:
        data = json.dumps(body).encode()
        request.add_header("Content-Type", "application/json")
    try:
        with urllib.request.urlopen(request, data, timeout) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def execute(endpoint, token, case):
    status, _ = call("GET", endpoint + "/healthz", token)
    if status != 200:
        return {"error": "provider could not be initialized"}
    language = {"javascript": "nodejs"}.get(case["language"], case["language"])
    body = {
        "code_b64": base64.b64encode(case["code"].encode()).decode(),
        "language": language,
        "arguments": case.get("arguments") or {},
    }
    status, text = call("POST", endpoint + "/run", token, body, 600)
    if status != 200:
        return {"error": "HTTP %d: %s" % (status, text)}
    answer = json.loads(text)
    result = answer.get("result") or {}
    return {
        "stdout": answer.get("stdout", ""),
        "stderr": answer.get("stderr", ""),
        "exit_code": answer.get("exit_code", 0),
        "status": answer.get("status"),
        "limit": answer.get("resource_limit_type"),
        "detail": answer.get("detail"),
        "timed": answer.get("time_used_ms") is not None,
        "artifacts": [
            {"name": a["name"], "mime_type": a["mime_type"], "text": base64.b64decode(a["content_b64"]).decode()}
            for a in answer.get("artifacts") or []
        ],
        "result": result.get("value"),
        "present": result.get("present", False),
    }


endpoint, token = sys.argv[1], sys.argv[2]
json.dump([execute(endpoint, token, case) for case in json.load(sys.stdin)], sys.stdout)
