"""The same failures of services behind Strait and behind Envoy, and what comes of them.

Usage: envoy_failures.py STRAIT ENVOY FOLDER SEED SCRIPTS

A script is a cluster with its policies (retries, timeouts, outlier detection), what its endpoints do with one request after the other,
and requests; or one whose endpoints are said to be healthy, degraded or not healthy, in two priorities. Scripts follow from the seed.
Both proxies have to give each request the same status, and each endpoint the same number of attempts, or as many as dice allow. Each difference is printed with the script; the exit status is 1 if there is any that `EXPLAINED` does
not name.
"""

import asyncio
import collections
import json
import random
import socket
import subprocess
import sys
import time
from pathlib import Path

TRY_TIMEOUT_MS = 300
TIMEOUT_MS = 900
SCRIPTS_AT_A_TIME = 12
EJECTED_AFTER = 0.05
SHOWN_MAX = 10

# What an endpoint does with a request that it has read, and whether that is no response.
STATUSES = [200, 409, 429, 500, 502, 503, 504]
SILENT = ["reset", "close", "partial", "stall"]

# Words of `retry.on`, with Envoy's.
WORDS = {
    "5xx": "5xx",
    "gateway_error": "gateway-error",
    "reset": "reset",
    "connect_failure": "connect-failure",
    "retriable_4xx": "retriable-4xx",
    "retriable_status": "retriable-status-codes",
    "retriable_headers": "retriable-headers",
}
# Those that a request without a response falls under.
OF_SILENCE = {"5xx", "gateway_error", "reset"}

# What is said of an endpoint's health, in both languages, and how often.
HEALTH = {"healthy": "HEALTHY", "degraded": "DEGRADED", "unhealthy": "UNHEALTHY", "draining": "DRAINING", "timeout": "TIMEOUT", "unknown": "UNKNOWN"}
HEALTH_WEIGHTS = [4, 4, 2, 1, 1, 1]
# Requests to such a cluster, and how far the shares of its endpoints may be apart, in standard deviations.
HEALTH_REQUESTS = 160
DEVIATIONS_MAX = 5

# Statuses that differ, by Strait's and Envoy's, and what the last attempt did: Strait says 502 where an upstream that was
# connected gave no valid response, as RFC 9110 does; Envoy says 503 where it closed.
EXPLAINED = {(502, 503, "reset"), (502, 503, "close"), (502, 503, "partial")}


class Script:
    """A cluster in both languages, with what happens."""

    def __init__(self, rng, number):
        self.number = number
        self.kind = rng.choices(["retry", "outlier", "health"], [12, 4, 2])[0]
        self.endpoints = rng.randint(1, 3)
        self.retry = None
        self.outlier = None
        self.timeout_ms = TIMEOUT_MS
        self.health, self.hedge = None, None
        if self.kind == "health":
            self.endpoints = rng.randint(2, 6)
            self.health = rng.choices(sorted(HEALTH, key=list(HEALTH).index), HEALTH_WEIGHTS, k=self.endpoints)
            first = rng.randint(1, self.endpoints)
            self.priorities = [0] * first + [1] * (self.endpoints - first)
            self.steps = []
            self.requests = [("GET", 0)] * HEALTH_REQUESTS
            return
        if self.kind == "outlier":
            self.endpoints = rng.randint(2, 4)
            failures = rng.choice(["5xx", "gateway"])
            self.outlier = {"kind": failures, "count": rng.randint(1, 4)}
            does = rng.choice(["500", "503", "502", "504"] if failures == "5xx" else ["502", "503", "504", "500"])
            # One endpoint fails always, the others never.
            self.steps = None
            self.failing = does
            # Enough for the ejection wherever the turn begins, and as many for each where there is none.
            self.requests = [("GET", 0)] * (self.endpoints * (self.outlier["count"] + 2))
            return
        words = rng.sample(sorted(WORDS), rng.randint(1, 3))
        is_for_silence = bool(OF_SILENCE & set(words))
        self.retry = {"on": words, "attempts_max": rng.randint(1, 4), "statuses": rng.sample([429, 409, 500], rng.randint(1, 2))}
        if rng.random() < 0.6:
            self.retry["try_timeout"] = True
        # Whether an attempt goes on that takes too long, beside another.
        self.hedge = "try_timeout" in self.retry and self.retry["attempts_max"] > 1 and rng.random() < 0.4 or None
        does = [str(status) for status in STATUSES] + ["200+", "503+", "429+"]
        silent = [it for it in SILENT if it != "stall" or "try_timeout" in self.retry]
        if is_for_silence:
            does += silent * 2
        self.steps = [rng.choice(does) for _ in range(rng.randint(1, 8))]
        # Without a word for it, Strait repeats what is safe and Envoy does not: what met the end of a connection that had been idle,
        # and what another endpoint may answer. docs/configuration/retries.md has that.
        if not is_for_silence and self.endpoints == 1 and rng.random() < 0.5:
            self.steps[0] = rng.choice(silent)
        method = rng.choice(["GET", "GET", "POST", "PUT", "DELETE"])
        body = rng.choice([0, 10, 3000]) if method in ("POST", "PUT") else 0
        self.requests = [(method, body)] * rng.randint(1, 3)
        if self.endpoints == 1 and rng.random() < 0.2:
            # The rule's own timeout.
            self.steps = ["stall"]
            self.retry.pop("try_timeout", None)
            self.hedge = None
            self.timeout_ms = 400

    def shown(self):
        shown = {key: value for key, value in vars(self).items() if value is not None}
        return shown | {"requests": len(self.requests)} if self.health else shown

    def rule_of_strait(self):
        rule = {"name": f"s{self.number}", "match": {"prefix": f"/{self.number}/"}, "cluster": f"s{self.number}",
                "timeout": f"{self.timeout_ms}ms"}
        if self.retry:
            retry = {"on": self.retry["on"], "attempts_max": self.retry["attempts_max"], "methods": "any",
                     "backoff": {"base": "1ms", "max": "2ms"}, "elsewhere": "previous_endpoints"}
            if "retriable_status" in self.retry["on"]:
                retry["status"] = self.retry["statuses"]
            if "retriable_headers" in self.retry["on"]:
                retry["headers"] = ["x-again"]
            if "try_timeout" in self.retry:
                retry["try_timeout"] = f"{TRY_TIMEOUT_MS}ms"
            rule["retry"] = retry
            if self.hedge:
                rule["hedge"] = {"after": "try_timeout"}
        return rule

    def cluster_of_strait(self, ports):
        cluster = {"name": f"s{self.number}", "endpoints": [f"127.0.0.1:{port}" for port in ports], "retry_budget": {"share": "100%"}}
        if self.health:
            cluster["endpoints"] = [{"address": f"127.0.0.1:{port}", "health": health, "priority": priority}
                                    for port, health, priority in zip(ports, self.health, self.priorities)]
        if self.outlier:
            count = self.outlier["count"]
            outlier = {"ejection": {"base": "1h", "max": "1h", "share_max": "100%"}, "interval": "1h"}
            outlier.update({"errors_5xx": count, "errors_gateway": 1000} if self.outlier["kind"] == "5xx" else
                           {"errors_5xx": 1000, "errors_gateway": count})
            cluster["outlier"] = outlier
        return cluster

    def route_of_envoy(self):
        route = {"cluster": f"s{self.number}", "timeout": f"{self.timeout_ms / 1000}s"}
        if self.retry:
            policy = {"retry_on": ",".join(WORDS[word] for word in self.retry["on"]), "num_retries": self.retry["attempts_max"] - 1,
                      "retry_back_off": {"base_interval": "0.001s", "max_interval": "0.002s"},
                      "host_selection_retry_max_attempts": 32,
                      "retry_host_predicate": [{"name": "envoy.retry_host_predicates.previous_hosts", "typed_config": {
                          "@type": "type.googleapis.com/envoy.extensions.retry.host.previous_hosts.v3.PreviousHostsPredicate"}}]}
            if "retriable_status" in self.retry["on"]:
                policy["retriable_status_codes"] = self.retry["statuses"]
            if "retriable_headers" in self.retry["on"]:
                policy["retriable_headers"] = [{"name": "x-again", "present_match": True}]
            if "try_timeout" in self.retry:
                policy["per_try_timeout"] = f"{TRY_TIMEOUT_MS / 1000}s"
            route["retry_policy"] = policy
            if self.hedge:
                route["hedge_policy"] = {"hedge_on_per_try_timeout": True}
        return {"match": {"prefix": f"/{self.number}/"}, "route": route}

    def cluster_of_envoy(self, ports):
        endpoints = [{"endpoint": {"address": {"socket_address": {"address": "127.0.0.1", "port_value": port}}}} for port in ports]
        localities = [{"lb_endpoints": endpoints}]
        if self.health:
            for endpoint, health in zip(endpoints, self.health):
                endpoint["health_status"] = HEALTH[health]
            localities = [{"priority": priority, "lb_endpoints": [it for it, of in zip(endpoints, self.priorities) if of == priority]}
                          for priority in sorted(set(self.priorities))]
        limits = {"priority": "DEFAULT", "max_retries": 1000}
        cluster = {"name": f"s{self.number}", "type": "STATIC", "connect_timeout": "1s",
                   "load_assignment": {"cluster_name": f"s{self.number}", "endpoints": localities},
                   "circuit_breakers": {"thresholds": [limits]}}
        if self.outlier:
            count, is_5xx = self.outlier["count"], self.outlier["kind"] == "5xx"
            cluster["outlier_detection"] = {
                "consecutive_5xx": count if is_5xx else 1000, "enforcing_consecutive_5xx": 100,
                "consecutive_gateway_failure": 1000 if is_5xx else count, "enforcing_consecutive_gateway_failure": 100,
                "enforcing_success_rate": 0, "interval": "3600s", "base_ejection_time": "3600s", "max_ejection_time": "3600s",
                "max_ejection_percent": 100}
        return cluster


class Service:
    """The endpoints of a script behind one proxy."""

    def __init__(self, script):
        self.script = script
        self.attempts = [0] * script.endpoints
        self.done = []
        self.servers = []

    async def start(self):
        ports = []
        for place in range(self.script.endpoints):
            server = await asyncio.start_server(lambda reader, writer, place=place: self.serve(place, reader, writer), "127.0.0.1", 0)
            self.servers.append(server)
            ports.append(server.sockets[0].getsockname()[1])
        return ports

    def next(self, place):
        """What comes of the next request, at whichever endpoint; of outliers the first endpoint fails always."""
        self.attempts[place] += 1
        if self.script.steps is None:
            does = self.script.failing if place == 0 else "200"
        else:
            count = len(self.done)
            does = self.script.steps[count] if count < len(self.script.steps) else "200"
        self.done.append(does)
        return does

    async def serve(self, place, reader, writer):
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
                if "content-length: " in head:
                    await reader.readexactly(int(head.split("content-length: ")[1].split("\r\n")[0]))
                elif "transfer-encoding: chunked" in head:
                    await reader.readuntil(b"0\r\n\r\n")
                does = self.next(place)
                if does == "stall":
                    await asyncio.sleep(3600)
                elif does == "reset":
                    linger = b"\x01\0\0\0\0\0\0\0"
                    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                    writer.transport.abort()
                    return
                elif does == "close":
                    return
                elif does == "partial":
                    writer.write(b"HTTP/1.1 200 OK\r\ncontent-le")
                    await writer.drain()
                    return
                again = "x-again: 1\r\n" if does.endswith("+") else ""
                writer.write(f"HTTP/1.1 {does.rstrip('+')} X\r\n{again}content-length: 2\r\n\r\nok".encode())
                await writer.drain()
        except (asyncio.IncompleteReadError, asyncio.CancelledError, ConnectionError):
            pass
        finally:
            writer.close()


async def ask(port, number, method, body):
    """The status of a response, or why there is none."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    length = f"content-length: {body}\r\n" if method in ("POST", "PUT") else ""
    head = f"{method} /{number}/ HTTP/1.1\r\nhost: services.example\r\n{length}connection: close\r\n\r\n"
    writer.write(head.encode() + b"x" * body)
    try:
        answer = await asyncio.wait_for(reader.read(), 20)
    finally:
        writer.close()
    return int(answer.split(b" ", 2)[1]) if answer.startswith(b"HTTP/1.1 ") else "no response"


async def until_open(port, process, what):
    for _ in range(600):
        if process.poll() is not None:
            sys.exit(f"{what} ended")
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.close()
            return
        except OSError:
            await asyncio.sleep(0.1)
    sys.exit(f"{what} does not listen")


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def strait_config(scripts, port, ports):
    return {"workers": 1, "listeners": [{"name": "edge", "address": f"127.0.0.1:{port}", "routes": "all"}],
            "routes": [{"name": "all", "rules": [script.rule_of_strait() for script in scripts]}],
            "clusters": [script.cluster_of_strait(of_script) for script, of_script in zip(scripts, ports)]}


def envoy_config(scripts, port, ports):
    manager = {"@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
               "stat_prefix": "edge",
               "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"],
                                                   "routes": [script.route_of_envoy() for script in scripts]}]},
               "http_filters": [{"name": "envoy.filters.http.router", "typed_config": {
                   "@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"}}]}
    listener = {"address": {"socket_address": {"address": "127.0.0.1", "port_value": port}},
                "filter_chains": [{"filters": [{"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}]}]}
    clusters = [script.cluster_of_envoy(of_script) for script, of_script in zip(scripts, ports)]
    return {"static_resources": {"listeners": [listener], "clusters": clusters}}


async def play(script, port, service):
    """The statuses of a script's requests, and what the last attempt of each did."""
    answers = []
    for method, body in script.requests:
        status = await ask(port, script.number, method, body)
        answers.append((status, service.done[-1] if service.done else None))
        if script.kind == "outlier":
            # In both, another thread ejects.
            await asyncio.sleep(EJECTED_AFTER)
    return answers


def differences_of(script, answers, services):
    """What differs between the two proxies, if anything, and what is explained of it."""
    found, explained = [], 0
    ours, theirs = answers
    if script.kind == "outlier":
        # Where each begins its turn differs: only how often each status came.
        one, other = (sorted(str(status) for status, _ in side) for side in answers)
        if one != other:
            found.append(f"statuses: Strait {one}, Envoy {other}")
    else:
        for place, ((mine, did), (its, _)) in enumerate(zip(ours, theirs)):
            if mine == its:
                continue
            if (mine, its, did) in EXPLAINED:
                explained += 1
            else:
                found.append(f"request {place}: Strait {mine}, Envoy {its}, after {did}")
    one, other = (service.attempts for service in services)
    if script.kind == "health":
        # In panic, Envoy sends requests to endpoints that are about to be removed, too.
        if any(health == "draining" and its > 0 for health, its in zip(script.health, other)):
            return [], 1
        # Both throw dice: what each endpoint gets may differ as binomial counts do.
        far = [abs(a - b) > DEVIATIONS_MAX * (a + b + 1) ** 0.5 for a, b in zip(one, other)]
        # One that gets nothing on one side gets nothing on the other.
        never = [(a == 0) != (b == 0) and a + b > DEVIATIONS_MAX for a, b in zip(one, other)]
        if any(far) or any(never):
            found.append(f"attempts: Strait {one}, Envoy {other}")
        return found, explained
    if script.kind == "outlier":
        # The endpoint that fails, and all others together.
        one, other = ([side[0], sum(side[1:])] for side in (one, other))
    elif len(script.requests) == 1 and sum(one) <= script.endpoints:
        one, other = sorted(one), sorted(other)
    else:
        # More attempts than endpoints, or turns that began elsewhere.
        one, other = [sum(one)], [sum(other)]
    if one != other:
        found.append(f"attempts: Strait {one}, Envoy {other}")
    return found, explained


async def compare(strait, envoy, folder, seed, count):
    rng = random.Random(seed)
    scripts = [Script(rng, number) for number in range(count)]
    services = [[Service(script), Service(script)] for script in scripts]
    ports = [[await service.start() for service in both] for both in services]
    ours, theirs = free_port(), free_port()
    strait_file, envoy_file = folder / "strait.json", folder / "envoy.json"
    strait_file.write_text(json.dumps(strait_config(scripts, ours, [both[0] for both in ports])))
    envoy_file.write_text(json.dumps(envoy_config(scripts, theirs, [both[1] for both in ports])))
    processes = []
    try:
        with open(folder / "strait.log", "wb") as log:
            processes.append(subprocess.Popen([strait, "run", "-c", strait_file], stdout=log, stderr=log))
        with open(folder / "envoy.log", "wb") as log:
            command = [envoy, "-c", envoy_file, "--concurrency", "1", "--disable-hot-restart", "-l", "error"]
            processes.append(subprocess.Popen(command, stdout=log, stderr=log))
        await until_open(ours, processes[0], f"Strait (see {folder}/strait.log)")
        await until_open(theirs, processes[1], f"Envoy (see {folder}/envoy.log)")
        room = asyncio.Semaphore(SCRIPTS_AT_A_TIME)

        async def run(script, both):
            async with room:
                return await asyncio.gather(play(script, ours, both[0]), play(script, theirs, both[1]))

        answers = await asyncio.gather(*(run(script, both) for script, both in zip(scripts, services)))
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait()
    return scripts, services, answers


def main():
    strait, envoy, folder, seed, count = sys.argv[1:]
    began = time.monotonic()
    scripts, services, answers = asyncio.run(compare(strait, envoy, Path(folder), int(seed), int(count)))
    different, explained, requests, attempts = 0, 0, 0, 0
    did = collections.Counter()
    for script, both, answer in zip(scripts, services, answers):
        found, fine = differences_of(script, answer, both)
        explained += fine
        if script.kind == "retry":
            requests += len(script.requests)
            attempts += sum(both[0].attempts)
            did.update(both[0].done)
        different += bool(found)
        if found and different <= SHOWN_MAX:
            print(f"--- {json.dumps(script.shown())}")
            for line in found:
                print(f"  {line}")
            if script.health:
                continue
            print(f"  Strait's attempts did {both[0].done}, Envoy's {both[1].done}")
            print(f"  Strait {answer[0]}\n  Envoy  {answer[1]}")
    print(f"seed {seed}: attempts by what they did: {dict(sorted(did.items()))}")
    # Scripts in which nothing fails would have no differences.
    if any(did[it] == 0 for it in SILENT + ["503", "429"]) or attempts < requests * 5 // 4:
        sys.exit("too few failures of some kind")
    print(f"seed {seed}: {count} scripts, {requests} requests with retries, {attempts} attempts of these, {different} scripts differ, "
          f"{explained} statuses explained, {time.monotonic() - began:.0f} s")
    sys.exit(1 if different else 0)


main()
