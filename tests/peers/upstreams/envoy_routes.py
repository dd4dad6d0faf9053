"""The same route tables in Strait and in Envoy, and the same requests to both.

Usage: envoy_routes.py STRAIT ENVOY FOLDER SEED TABLES REQUESTS

Tables and requests follow from the seed. Both proxies have to give each request the same status, and then the
same reply or redirect, or the same cluster, target, host and header fields at the upstream. Each difference is
printed with the table as both have it; the exit status is 1 if there is any.
"""

import asyncio
import collections
import json
import random
import socket
import subprocess
import sys
import time
import urllib.parse
from pathlib import Path

CLUSTERS = ["a", "b", "c", "d"]
# The endpoints of a cluster, by host and subset, and the name that each has.
ENDPOINTS = {
    "a": [("a", None, {})],
    "b": [("b", "b.internal.example", {})],
    "c": [("c1", None, {"version": "v1"}), ("c2", "c2.internal.example", {"version": "v2", "unit": "1"})],
    "d": [("d", "d.example", {})],
}
SUBSETS = [{"version": "v1"}, {"version": "v2"}, {"version": "v2", "unit": "1"}, {"version": "v3"}]
SHADOW = "shadow"
CONNECTIONS = 16
SHOWN_MAX = 10

# Fields that each proxy adds on its own account, and `docs/configuration` says so.
OWN_FIELDS = {
    "connection", "x-request-id", "x-forwarded-for", "x-forwarded-proto", "x-forwarded-host", "x-forwarded-port",
    "x-envoy-expected-rq-timeout-ms", "x-envoy-original-path", "x-envoy-internal", "via",
}

SEGMENTS = ["a", "b", "api", "Api", "users", "7", "42", "x.y", "v1", "tenant", "items", "a-b"]
HEADERS = ["x-a", "x-b", "x-team"]
VALUES = ["", "1", "7", "18", "99", "on", "off", "alpha", "alphabet", "beta", "Alpha", "a,b", "x y"]
PARAMETERS = ["p", "q", "page"]
PLAIN = ["1", "7", "42", "on", "alpha", "alphabet", "beta"]
METHODS = ["GET", "HEAD", "POST", "PUT", "DELETE"]


class Table:
    """One route table in both languages."""

    def __init__(self, rng, number):
        self.number = number
        self.hosts = [f"t{number}.example"]
        if rng.random() < 0.5:
            self.hosts.append(f"*.t{number}.example")
        if rng.random() < 0.3:
            self.hosts.append(f"p{number}.*")
        rules = [rule(rng, f"r{place}") for place in range(rng.randint(1, 8))]
        if rng.random() < 0.7:
            last = ({"name": "last", "match": {"prefix": "/"}}, {"name": "last", "match": {"prefix": "/"}})
            hint = {"path": "/", "headers": {}, "query": {}, "cookies": {}, "method": "GET"}
            act(rng, "prefix", *last, hint)
            rules.append((*last, hint))
        self.strait = {"name": f"t{number}", "hosts": self.hosts, "rules": [it[0] for it in rules]}
        self.envoy = {"name": f"t{number}", "domains": self.hosts, "routes": [it[1] for it in rules]}
        self.hints = [it[2] for it in rules]
        if rng.random() < 0.3:
            ours, theirs = edits(rng, "t")
            self.strait["headers"] = ours
            self.envoy.update(theirs)

    def host(self, rng):
        kind = rng.random()
        if kind < 0.6:
            return f"t{self.number}.example"
        if kind < 0.75:
            return f"sub.T{self.number}.example"
        if kind < 0.9:
            return f"p{self.number}.test.org"
        return f"x.y.t{self.number}.example"


def path_of(rng):
    segments = [rng.choice(SEGMENTS) for _ in range(rng.randint(0, 3))]
    return "/" + "/".join(segments) + ("/" if segments and rng.random() < 0.2 else "")


def escape(text):
    return "".join(f"\\{it}" if it in ".-" else it for it in text)


def path_match(rng):
    """Strait's criterion, Envoy's, a path that meets it, and its kind."""
    kind = rng.choice(["path", "prefix", "prefix", "segments", "regex", "template"])
    path = path_of(rng)
    if kind == "path":
        return {"path": path}, {"path": path}, path, kind
    if kind == "prefix":
        prefix = path[: rng.randint(1, len(path))]
        return {"prefix": prefix}, {"prefix": prefix}, prefix + rng.choice(["", "x", "/x"]), kind
    if kind == "segments":
        prefix = path.rstrip("/") or "/a"
        met = prefix + rng.choice(["", "/", "/x", "/7/b"])
        return {"segments": prefix}, {"path_separated_prefix": prefix}, met, kind
    if kind == "regex":
        prefix = escape(path.rstrip("/"))
        tail, met = rng.choice([("/([0-9]+)", "/42"), ("(/.*)?", "/x/7"), ("/[a-z]+", "/beta"), ("", "")])
        regex = prefix + tail or "/"
        return {"regex": regex}, {"safe_regex": {"regex": regex}}, path.rstrip("/") + met, kind
    first = rng.choice(SEGMENTS)
    template, met = rng.choice([
        (f"/{first}/{{id}}/{{rest=**}}", f"/{first}/7/x/y"),
        (f"/{first}/*", f"/{first}/b"),
        (f"/{first}/{{id}}", f"/{first}/42"),
        (f"/{{one}}/{{two}}/{first}", f"/u/v/{first}"),
        ("/**", path),
    ])
    theirs = {"path_match_policy": {
        "name": "envoy.path.match.uri_template.uri_template_matcher",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.path.match.uri_template.v3.UriTemplateMatchConfig",
            "path_template": template,
        },
    }}
    return {"template": template}, theirs, met, kind


def string_match(rng, values):
    """A condition on a value: Strait's, Envoy's string_match, and a value that meets it."""
    value = rng.choice([it for it in values if it])
    kind = rng.choice(["exact", "prefix", "suffix", "contains", "regex"])
    if kind == "exact":
        ours, theirs, met = {"exact": value}, {"exact": value}, value
    elif kind == "prefix":
        ours, theirs, met = {"prefix": value[:2]}, {"prefix": value[:2]}, value
    elif kind == "suffix":
        ours, theirs, met = {"suffix": value[-2:]}, {"suffix": value[-2:]}, value
    elif kind == "contains":
        ours, theirs, met = {"contains": value[1:3] or value}, {"contains": value[1:3] or value}, value
    else:
        regex = rng.choice(["[0-9]+", "alpha.*", "on|off", ".*"])
        met = {"[0-9]+": "42", "alpha.*": "alphabet", "on|off": "off", ".*": value}[regex]
        return {"regex": regex}, {"safe_regex": {"regex": regex}}, met
    if rng.random() < 0.2:
        ours["case"] = "insensitive"
        theirs["ignore_case"] = True
        met = met.swapcase()
    return ours, theirs, met


def header_match(rng, name):
    kind = rng.random()
    theirs = {"name": name}
    if kind < 0.15:
        present = rng.random() < 0.5
        theirs["present_match"] = present
        return {"present": present}, theirs, "1" if present else None
    if kind < 0.3:
        ours = {"range": [18, 99]}
        theirs["range_match"] = {"start": 18, "end": 99}
        met = rng.choice(["18", "98"])
    else:
        ours, theirs["string_match"], met = string_match(rng, VALUES)
    if rng.random() < 0.25:
        case = ours.pop("case", None)
        ours = {"not": ours, **({"case": case} if case else {})}
        theirs["invert_match"] = True
        met = rng.choice(["zzz", met])
    if rng.random() < 0.2:
        ours["missing_as_empty"] = True
        theirs["treat_missing_header_as_empty"] = True
    return ours, theirs, met


def rule(rng, name):
    """A rule, the same as a route of Envoy's, and what a request to meet it has."""
    match, theirs, path, kind = path_match(rng)
    hint = {"path": path, "headers": {}, "query": {}, "cookies": {}, "method": "GET"}
    if kind in ("path", "prefix", "segments") and rng.random() < 0.2:
        match["case"] = "insensitive"
        theirs["case_sensitive"] = False
        hint["path"] = path.swapcase()
    headers = []
    if rng.random() < 0.25:
        methods = rng.sample(METHODS, rng.randint(1, 2))
        is_inverted = rng.random() < 0.3
        match["methods"] = {"not": methods} if is_inverted else methods
        it = {"name": ":method", "string_match": {"safe_regex": {"regex": "|".join(methods)}}}
        headers.append({**it, "invert_match": True} if is_inverted else it)
        hint["method"] = methods[0]
    for header in rng.sample(HEADERS, rng.choice([0, 0, 1, 1, 2])):
        ours, envoys, met = header_match(rng, header)
        match.setdefault("headers", {})[header] = ours
        headers.append(envoys)
        hint["headers"][header] = met
    if headers:
        theirs["headers"] = headers
    if rng.random() < 0.2:
        parameter = rng.choice(PARAMETERS)
        if rng.random() < 0.2:
            ours, envoys, met = {"present": True}, {"present_match": True}, "1"
        else:
            ours, envoys, met = string_match(rng, PLAIN)
            envoys = {"string_match": envoys}
        match["query"] = {parameter: ours}
        theirs["query_parameters"] = [{"name": parameter, **envoys}]
        hint["query"][parameter] = met
    if rng.random() < 0.1:
        ours, envoys, met = string_match(rng, PLAIN)
        match["cookies"] = {"beta": ours}
        theirs["cookies"] = [{"name": "beta", "string_match": envoys}]
        hint["cookies"]["beta"] = met
    if rng.random() < 0.05:
        match["grpc"] = True
        theirs["grpc"] = {}
        hint["headers"]["content-type"] = "application/grpc"
        hint["method"] = "POST"
    if rng.random() < 0.1:
        percent = rng.choice([0, 100])
        match["fraction"] = {"percent": percent}
        theirs["runtime_fraction"] = {"default_value": {"numerator": percent, "denominator": "HUNDRED"}}
    ours = {"name": name, "match": match}
    envoys = {"name": name, "match": theirs}
    act(rng, kind, ours, envoys, hint)
    return ours, envoys, hint


def act(rng, kind, ours, envoys, hint):
    what = rng.random()
    if what < 0.1:
        status = rng.choice([200, 404, 418, 503])
        ours["respond"] = {"status": status, "body": f"direct {status}"}
        envoys["direct_response"] = {"status": status, "body": {"inline_string": f"direct {status}"}}
    elif what < 0.25:
        redirect(rng, kind, ours, envoys)
        return
    else:
        forward(rng, kind, ours, envoys, hint)
    if rng.random() < 0.4:
        headers, theirs = edits(rng, "r")
        if "respond" in ours:
            headers.pop("request", None)
        ours["headers"] = headers
        envoys.update(theirs)


def redirect(rng, kind, ours, envoys):
    status, name = rng.choice([
        (301, "MOVED_PERMANENTLY"), (302, "FOUND"), (303, "SEE_OTHER"), (307, "TEMPORARY_REDIRECT"),
        (308, "PERMANENT_REDIRECT"),
    ])
    to, theirs = {"status": status}, {"response_code": name}
    if rng.random() < 0.5:
        to["host"] = theirs["host_redirect"] = "other.example"
    if rng.random() < 0.4:
        to["scheme"] = theirs["scheme_redirect"] = rng.choice(["https", "http"])
    if rng.random() < 0.3:
        to["port"] = theirs["port_redirect"] = rng.choice([443, 8443])
    what = rng.random()
    if what < 0.3:
        to["path"] = theirs["path_redirect"] = rng.choice(["/new", "/new/place"])
    elif what < 0.6 and kind in ("prefix", "segments"):
        to["prefix"] = theirs["prefix_rewrite"] = rng.choice(["/new", "/other"])
    elif what < 0.75:
        pattern, with_ = rng.choice([("/a", "/z"), ("^/([a-z]+)", r"/moved/\1"), ("[0-9]+", "n")])
        to["regex"], to["with"] = pattern, with_
        theirs["regex_rewrite"] = {"pattern": {"regex": pattern}, "substitution": with_}
    if rng.random() < 0.3:
        to["strip_query"] = theirs["strip_query"] = True
    if not to.keys() - {"status", "strip_query"}:
        to["host"] = theirs["host_redirect"] = "other.example"
    ours["redirect"] = to
    envoys["redirect"] = theirs


def forward(rng, kind, ours, envoys, hint):
    theirs = {}
    what = rng.random()
    if what < 0.6:
        ours["cluster"] = theirs["cluster"] = rng.choice(CLUSTERS)
    elif what < 0.85:
        chosen = rng.choice(CLUSTERS)
        ours["clusters"] = [{"cluster": it, "weight": 100 if it == chosen else 0} for it in CLUSTERS]
        theirs["weighted_clusters"] = {
            "clusters": [{"name": it, "weight": 100 if it == chosen else 0} for it in CLUSTERS],
        }
        if rng.random() < 0.5:
            headers, more = edits(rng, "w")
            for one, other in zip(ours["clusters"], theirs["weighted_clusters"]["clusters"]):
                one["headers"] = headers
                other.update(more)
    else:
        ours["cluster_header"] = theirs["cluster_header"] = "x-cluster"
        hint["headers"]["x-cluster"] = rng.choice([*CLUSTERS, "none"])
    rewrite = {}
    if rng.random() < 0.45:
        what = rng.random()
        if what < 0.5 and kind in ("prefix", "segments", "path"):
            rewrite["prefix"] = theirs["prefix_rewrite"] = rng.choice(["/v2", "/v2/x"])
        elif what < 0.8:
            pattern, with_ = rng.choice([("/a", "/z"), ("^/([a-z]+)/", r"/\1-"), ("[0-9]", r"(\0)")])
            rewrite["regex"], rewrite["with"] = pattern, with_
            theirs["regex_rewrite"] = {"pattern": {"regex": pattern}, "substitution": with_}
    if rng.random() < 0.4:
        if rng.random() < 0.4:
            rewrite["host_endpoint"] = theirs["auto_host_rewrite"] = True
        elif rng.random() < 0.5:
            rewrite["host"] = theirs["host_rewrite_literal"] = "internal.example"
        else:
            rewrite["host_header"] = theirs["host_rewrite_header"] = "x-host"
            hint["headers"]["x-host"] = rng.choice(["other.example", "other.example:81", None])
    if rewrite:
        ours["rewrite"] = rewrite
    # Without one, either endpoint of `c` may be chosen.
    is_mirrored = rng.random() < 0.2
    # A request without an endpoint is mirrored by Strait alone.
    subset = rng.choice(SUBSETS[:3] if is_mirrored else SUBSETS)
    ours["subset"] = subset
    theirs["metadata_match"] = {"filter_metadata": {"envoy.lb": subset}}
    if is_mirrored:
        ours["mirror"] = [{"cluster": SHADOW}]
        theirs["request_mirror_policies"] = [{"cluster": SHADOW}]
    envoys["route"] = theirs


VALUES_SET = [
    "plain", "%REQ(x-a)%", "%REQ(x-none?x-b)%", "<%REQ(:method)%>", "%PROTOCOL%", "%ROUTE_NAME%",
    "%DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT%", "%REQ(x-team):3%", "100%%", "%REQ(:authority)%",
]
VALUES_ANSWERED = ["plain", "%RESP(x-up)%", "%RESPONSE_CODE%", "%REQ(x-a)%", "%ROUTE_NAME%"]


def edits(rng, level):
    ours, theirs = {}, {}
    for side, values in (("request", VALUES_SET), ("response", VALUES_ANSWERED)):
        if rng.random() < 0.4:
            continue
        mine, added, removed = {}, [], []
        for verb, action in (
            ("set", "OVERWRITE_IF_EXISTS_OR_ADD"), ("append", "APPEND_IF_EXISTS_OR_ADD"),
            ("append_if_absent", "ADD_IF_ABSENT"), ("set_if_present", "OVERWRITE_IF_EXISTS"),
        ):
            if rng.random() < 0.35:
                # One name for each verb and level: several edits of one name have an order of their own.
                name = rng.choice([f"x-{level}-{verb.replace('_', '-')}", "x-up" if side == "response" else "x-b"])
                if any(name in known for known in mine.values()):
                    continue
                value = rng.choice(values)
                # Where a value is empty, Envoy leaves the client's field as it is.
                if verb == "set_if_present" or (verb == "set" and name in ("x-b", "x-up")):
                    value = rng.choice(["plain", "%PROTOCOL%", "%ROUTE_NAME%"])
                mine[verb] = {name: value}
                added.append({"header": {"key": name, "value": value}, "append_action": action})
        if rng.random() < 0.2:
            name = "x-gone" if side == "request" else "x-down"
            mine["remove"] = [name]
            removed.append(name)
        if mine:
            ours[side] = mine
        if added:
            theirs[f"{side}_headers_to_add"] = added
        if removed:
            theirs[f"{side}_headers_to_remove"] = removed
    return ours, theirs


def request(rng, table):
    """One request, near to some rule of the table."""
    hint = rng.choice(table.hints)
    path = hint["path"] if rng.random() < 0.75 else path_of(rng)
    fields = [("Host", table.host(rng))]
    names = {**{it: None for it in HEADERS}, **hint["headers"]}
    for name, met in names.items():
        value = met
        # What is no host is none for Strait.
        if rng.random() < 0.2 and name != "x-host":
            value = rng.choice([None, *VALUES])
        if value is not None:
            fields.append((name, value))
            if rng.random() < 0.05:
                fields.append((name, rng.choice(PLAIN)))
    for name in ("x-gone", "x-r-set-if-present", "x-t-append"):
        if rng.random() < 0.3:
            fields.append((name, "client"))
    query = dict(hint["query"]) if rng.random() < 0.8 else {}
    if rng.random() < 0.2:
        query[rng.choice(PARAMETERS)] = rng.choice(PLAIN)
    cookies = hint["cookies"] if rng.random() < 0.8 else {}
    if cookies:
        fields.append(("cookie", "; ".join(["first=1", *(f"{name}={value}" for name, value in cookies.items())])))
    target = path + ("?" + "&".join(f"{name}={value}" for name, value in query.items()) if query else "")
    method = hint["method"] if rng.random() < 0.8 else rng.choice(METHODS)
    if method in ("POST", "PUT"):
        fields.append(("Content-Length", "0"))
    # One value of `x-cluster`: of two, Strait knows no cluster.
    seen, kept = set(), []
    for name, value in fields:
        if name in ("x-cluster", "x-host", "content-type") and name in seen:
            continue
        seen.add(name)
        kept.append((name, value))
    lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in kept)]
    return method, "\r\n".join(lines) + "\r\n\r\n"


def free_port():
    with socket.socket() as it:
        it.bind(("127.0.0.1", 0))
        return it.getsockname()[1]


class Upstream(asyncio.Protocol):
    """Says what it got."""

    def __init__(self, name, got_here):
        self.name = name
        self.got_here = got_here
        self.got = b""

    def connection_made(self, transport):
        self.transport = transport

    def data_received(self, data):
        self.got += data
        while b"\r\n\r\n" in self.got:
            head, self.got = self.got.split(b"\r\n\r\n", 1)
            line, *fields = head.decode("latin-1").split("\r\n")
            method, target, _ = line.split(" ", 2)
            pairs = sorted((name.lower(), value.strip()) for name, value in (it.split(":", 1) for it in fields))
            self.got_here.append((method, target, [it for it in pairs if it[0] not in OWN_FIELDS]))
            said = {"cluster": self.name, "method": method, "target": target, "fields": pairs}
            body = b"" if method == "HEAD" else json.dumps(said).encode()
            header = json.dumps(said)
            answer = f"HTTP/1.1 200 OK\r\nx-up: u\r\nx-down: d\r\nx-said: {header}\r\ncontent-length: {len(body)}\r\n\r\n"
            self.transport.write(answer.encode() + body)


async def ask(connection, method, text):
    reader, writer = connection
    writer.write(text.encode())
    head = (await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 10)).decode("latin-1")
    line, *fields = head.rstrip("\r\n").split("\r\n")
    pairs = [(name.lower(), value.strip()) for name, value in (it.split(":", 1) for it in fields)]
    named = dict(pairs)
    body = b""
    if method != "HEAD" and "content-length" in named:
        body = await reader.readexactly(int(named["content-length"]))
    return int(line.split(" ")[1]), pairs, body.decode("latin-1"), named.get("connection") == "close"


def seen(text, status, pairs, body):
    """What both have to have in common."""
    named = dict(pairs)
    edited = sorted((name, value) for name, value in pairs if name.startswith("x-") and name not in ("x-said",))
    edited = [it for it in edited if it[0] not in OWN_FIELDS and not it[0].startswith("x-envoy-upstream")]
    if "x-said" in named:
        said = json.loads(named["x-said"])
        fields = [tuple(it) for it in said["fields"] if it[0] not in OWN_FIELDS]
        upstream = (said["cluster"], said["method"], said["target"], fields)
        return {"status": status, "upstream": upstream, "edited": edited}
    is_direct = body.startswith("direct")
    # Envoy has no status yet when it writes this into a reply of its own.
    edited = [(name, "0" if value == str(status) else value) for name, value in edited]
    location = named.get("location")
    if location is not None:
        # Envoy writes the whole of it, Strait what the client does not know.
        lines = text.split("\r\n")
        host = next(it.split(": ", 1)[1] for it in lines if it.startswith("Host: "))
        location = urllib.parse.urljoin(f"http://{host.lower()}{lines[0].split(' ')[1]}", location)
        parts = urllib.parse.urlsplit(location)
        location = parts._replace(netloc=parts.netloc.lower()).geturl()
    return {"status": status, "location": location, "body": body if is_direct else "", "edited": edited}


KINDS = ("forwarded", "redirected", "answered", "without a rule", "without a cluster")


def kind_of(answer):
    if "upstream" in answer:
        return "forwarded"
    if answer["location"] is not None:
        return "redirected"
    if answer["body"]:
        return "answered"
    return "without a cluster" if answer["status"] == 503 else "without a rule"


def strait_config(tables, address, ports):
    return {
        "workers": 1,
        "listeners": [{
            "name": "edge", "address": address, "routes": [it.strait["name"] for it in tables],
            "http": {"forwarded": "off", "request_id": False},
        }],
        "routes": [it.strait for it in tables],
        "clusters": [*(cluster_of_strait(name, ports) for name in CLUSTERS), {
            "name": SHADOW, "endpoints": [f"127.0.0.1:{ports['shadow of Strait']}"],
        }],
    }


def cluster_of_strait(name, ports):
    endpoints = [
        {"address": f"127.0.0.1:{ports[it]}", "metadata": metadata, **({"host": host} if host else {})}
        for it, host, metadata in ENDPOINTS[name]
    ]
    subsets = {"by": [["version"], ["version", "unit"]], "fallback": "none"}
    return {"name": name, "endpoints": endpoints, **({"subsets": subsets} if len(endpoints) > 1 else {})}


def cluster_of_envoy(name, endpoints):
    subsets = {"fallback_policy": "NO_FALLBACK", "subset_selectors": [
        {"keys": ["version"]}, {"keys": ["version", "unit"]},
    ]}
    return {
        "name": name, "type": "STATIC", "connect_timeout": "5s",
        **({"lb_subset_config": subsets} if len(endpoints) > 1 else {}),
        "load_assignment": {"cluster_name": name, "endpoints": [{"lb_endpoints": [{
            "endpoint": {
                "address": {"socket_address": {"address": "127.0.0.1", "port_value": port}},
                **({"hostname": host} if host else {}),
            },
            "metadata": {"filter_metadata": {"envoy.lb": metadata}},
        } for port, host, metadata in endpoints]}]},
    }


def envoy_config(tables, port, ports):
    manager = {
        "@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "edge", "normalize_path": True, "merge_slashes": True, "generate_request_id": False,
        "server_header_transformation": "PASS_THROUGH",
        "route_config": {"name": "all", "virtual_hosts": [it.envoy for it in tables]},
        "http_filters": [{"name": "envoy.filters.http.router", "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router",
            "suppress_envoy_headers": True,
        }}],
    }
    # Strait joins fields of one name, as Envoy did.
    flags = {"envoy.reloadable_features.match_headers_individually": False}
    return {"layered_runtime": {"layers": [{"name": "flags", "static_layer": flags}]}, "static_resources": {
        "listeners": [{
            "name": "edge",
            "address": {"socket_address": {"address": "127.0.0.1", "port_value": port}},
            "filter_chains": [{"filters": [
                {"name": "envoy.filters.network.http_connection_manager", "typed_config": manager},
            ]}],
        }],
        "clusters": [
            *(cluster_of_envoy(it, [(ports[of], *more) for of, *more in ENDPOINTS[it]]) for it in CLUSTERS),
            cluster_of_envoy(SHADOW, [(ports["shadow of Envoy"], None, {})]),
        ],
    }}


async def connect(port):
    return await asyncio.open_connection("127.0.0.1", port, limit=1 << 20)


async def until_open(port, process, what):
    for _ in range(600):
        if process.poll() is not None:
            sys.exit(f"{what} ended: {process.returncode}")
        try:
            (await connect(port))[1].close()
            return
        except OSError:
            await asyncio.sleep(0.05)
    sys.exit(f"{what} does not listen")


async def compare(strait, envoy, folder, seed, table_count, request_count):
    rng = random.Random(seed)
    tables = [Table(rng, number) for number in range(table_count)]
    requests = [(table, *request(rng, table)) for table in tables for _ in range(request_count)]
    loop = asyncio.get_running_loop()
    ports, servers = {}, []
    copies = {"shadow of Strait": [], "shadow of Envoy": []}
    for name in [*(it[0] for endpoints in ENDPOINTS.values() for it in endpoints), *copies]:
        got_here = copies.get(name, collections.deque(maxlen=1))
        server = await loop.create_server(lambda name=name, got_here=got_here: Upstream(name, got_here), "127.0.0.1", 0)
        servers.append(server)
        ports[name] = server.sockets[0].getsockname()[1]
    ours, theirs = free_port(), free_port()
    strait_file, envoy_file = folder / "strait.yaml", folder / "envoy.json"
    # JSON is YAML.
    strait_file.write_text(json.dumps(strait_config(tables, f"127.0.0.1:{ours}", ports), indent=1))
    envoy_file.write_text(json.dumps(envoy_config(tables, theirs, ports), indent=1))
    processes = []
    try:
        with open(folder / "strait.log", "wb") as log:
            processes.append(subprocess.Popen([strait, "run", "-c", strait_file], stdout=log, stderr=log))
        with open(folder / "envoy.log", "wb") as log:
            command = [envoy, "-c", envoy_file, "--concurrency", "1", "--disable-hot-restart", "-l", "error"]
            processes.append(subprocess.Popen(command, stdout=log, stderr=log))
        await until_open(ours, processes[0], f"Strait (see {folder}/strait.log)")
        await until_open(theirs, processes[1], f"Envoy (see {folder}/envoy.log)")
        differences = []
        kinds = collections.Counter()
        queue = iter(requests)

        async def worker():
            connections = [await connect(ours), await connect(theirs)]
            for table, method, text in queue:
                answers = []
                for place, port in enumerate((ours, theirs)):
                    status, pairs, body, closes = await ask(connections[place], method, text)
                    answers.append(seen(text, status, pairs, body))
                    if closes:
                        connections[place][1].close()
                        connections[place] = await connect(port)
                kinds[kind_of(answers[0])] += 1
                # Envoy turns what a rule answers a call of gRPC into a status of gRPC.
                is_answered_call = "application/grpc" in text and "upstream" not in answers[0]
                if answers[0] != answers[1] and not is_answered_call:
                    differences.append((table, text, *answers))

        await asyncio.gather(*(worker() for _ in range(CONNECTIONS)))
        # Nothing waits for a copy.
        for _ in range(100):
            one, other = (sorted(it) for it in copies.values())
            if one == other:
                break
            await asyncio.sleep(0.05)
        return tables, requests, kinds, differences, (one, other)
    finally:
        for process in processes:
            process.kill()
            process.wait()
        for server in servers:
            server.close()


def main():
    strait, envoy, folder, seed, table_count, request_count = sys.argv[1:]
    began = time.monotonic()
    tables, requests, kinds, differences, copies = asyncio.run(
        compare(strait, envoy, Path(folder), int(seed), int(table_count), int(request_count))
    )
    for table, text, one, other in differences[:SHOWN_MAX]:
        print(f"--- {text.strip()}")
        keys = [key for key in {**one, **other} if one.get(key) != other.get(key)]
        for key in keys:
            print(f"{key}: Strait {one.get(key)!r}\n{' ' * len(key)}  Envoy  {other.get(key)!r}")
        print(json.dumps(table.strait))
    for name, some, others in (("Strait", *copies), ("Envoy", *copies[::-1])):
        others = list(others)
        alone = [it for it in some if it not in others or others.remove(it)]
        for it in alone[:SHOWN_MAX]:
            print(f"--- a copy that {name} alone has sent: {it}")
    # Tables that nothing meets would have no differences.
    if any(kinds[it] * 50 < len(requests) for it in KINDS) or len(copies[0]) * 50 < len(requests):
        sys.exit(f"too few of some kind: {kinds}")
    said = ", ".join(f"{kinds[it]} {it}" for it in KINDS)
    print(f"seed {seed}: {said}")
    print(f"seed {seed}: {len(tables)} tables, {len(requests)} requests, {len(copies[0])} copies, {len(differences)} differences, "
          f"{time.monotonic() - began:.0f} s")
    sys.exit(1 if differences or copies[0] != copies[1] else 0)


main()
