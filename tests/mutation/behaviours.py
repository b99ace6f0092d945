"""What is broken, one behaviour at a time, and the tests that notice it.

A tool such as mutmut changes every operator of a module. It cannot do that here in reasonable time:
the tests of these modules start real servers. So each entry is a mistake that would hurt users.
"""

from __future__ import annotations

from dataclasses import dataclass

from tests.mutation.faults import Edit

REDIS = "stores/redis/"
CLUSTER, DIALING, MAKER = f"{REDIS}cluster.py", f"{REDIS}dialing.py", f"{REDIS}maker.py"
POOL, SPREAD, WIRE = f"{REDIS}pool.py", f"{REDIS}spread.py", f"{REDIS}wire.py"
BREAKER, OUTAGE, REFUSALS = "stores/breaker.py", "stores/outage.py", "stores/refusals.py"
LEASE, LEASES = "stores/lease.py", "stores/leases.py"


@dataclass(frozen=True)
class Behaviour:
    area: str
    #: What is broken.
    name: str
    module: str
    edits: tuple[Edit, ...]
    #: Test files and folders, or single tests where a file takes long.
    tests: tuple[str, ...]


def broken(area: str, name: str, module: str, old: str, new: str, *tests: str) -> Behaviour:
    return Behaviour(area, name, module, ((old, new),), tests)


ON_CLUSTER = "outage/test_cluster.py::"
ON_LINKS = "outage/test_links.py::"

NETWORK = (
    broken(
        "network",
        "the nodes that a cluster's map names are not remembered",
        CLUSTER,
        "        self._nodes = (*self._nodes, *sorted(serving.difference(self._nodes)))\n",
        "",
        f"{ON_CLUSTER}test_a_primary_that_dies_is_the_trouble_of_its_own_clients",
    ),
    broken(
        "network",
        "the time of connecting counts against each later wait",
        POOL,
        "took, wire.took = wire.took, 0.0",
        "took = wire.took",
        "outage/test_pool.py",
    ),
    broken(
        "network",
        "a lost connection leaves the other idle ones",
        POOL,
        "        self._discard(wire)\n        self._close_idle()\n        with",
        "        self._discard(wire)\n        with",
        "outage/test_pool.py",
    ),
    broken(
        "network",
        "ASKING is not sent again before EVAL",
        POOL,
        "            except failing:\n                if before is not None:\n"
        "                    wire.call(before, deadline)\n",
        "            except failing:\n",
        f"{ON_CLUSTER}test_a_node_that_imports_a_slot_is_asked_again_if_it_lacks_the_script",
    ),
    broken(
        "network",
        "a call that had to connect has two timeouts",
        POOL,
        "        wire = connections.take(deadline)\n",
        "        wire = connections.take(deadline)\n"
        "        deadline = time.monotonic() + self._timeout\n",
        "outage/test_pool.py",
    ),
    broken(
        "network",
        "an error reply loses its connection",
        POOL,
        "        except exceptions.ResponseError:\n            connections.give_back(wire)\n",
        "        except exceptions.ResponseError:\n            connections.lose(wire)\n",
        "outage/test_pool.py",
    ),
    broken(
        "network",
        "MOVED is not remembered",
        CLUSTER,
        "                served[at] = node\n",
        "",
        f"{ON_CLUSTER}test_a_slot_that_has_moved_is_asked_for_at_its_new_node_from_then_on",
    ),
    broken(
        "network",
        "a node that does not know its own address is not reached",
        CLUSTER,
        "primary[0] or asked[0].encode()",
        "primary[0]",
        f"{ON_CLUSTER}test_a_node_that_does_not_know_its_own_address_is_reached_at_the_one_asked",
    ),
    broken(
        "network",
        "a forked child goes on with its parent's connection",
        POOL,
        "            for wire in tuple(connections.wires):\n                wire.close()\n",
        "            connections.pid, self._connections = os.getpid(), connections\n",
        f"{ON_LINKS}test_a_fork_leaves_a_connection_over_tls_to_the_parent",
    ),
    broken(
        "network",
        "a forked child says goodbye on its parent's connection",
        WIRE,
        "        self._sock.close()\n",
        "        if isinstance(self._sock, ssl.SSLSocket):\n"
        "            self._sock.settimeout(1)\n            self._sock.unwrap()\n"
        "        self._sock.close()\n",
        f"{ON_LINKS}test_a_fork_leaves_a_connection_over_tls_to_the_parent",
    ),
    broken(
        "network",
        "connecting over TLS needs the right to PING",
        DIALING,
        '{command[0]} with OK")\n',
        '{command[0]} with OK")\n    if isinstance(options, redis.SSLConnection):\n'
        '        wire.call(packed("PING"), deadline)\n',
        f"{ON_LINKS}test_the_documented_rights_are_enough_over_tls",
    ),
    broken(
        "network",
        "who waits for a connection does not hear that it failed",
        MAKER,
        "        self._failure = error\n        self.changed.notify_all()",
        "        self._failure = error",
        "outage/test_connecting.py::test_a_refused_connection_is_told_at_once_to_all_who_wait",
    ),
    broken(
        "network",
        "an answer that came unasked is read as the next one's",
        POOL,
        "is_quiet = wire.is_quiet()",
        "is_quiet = True",
        f"{ON_LINKS}test_a_connection_that_is_not_quiet_is_not_used",
    ),
    broken(
        "network",
        "a reply that drips extends the timeout",
        WIRE,
        '        size, before = 0, b""\n        while True:\n',
        '        size, before = 0, b""\n        while True:\n            deadline += 0.3\n',
        "outage/test_wire.py",
    ),
)

IN_PARTS = ("test_spread.py",)

SEVERAL_NODES = (
    broken(
        "nodes",
        "a settlement ends at the first node that fails",
        SPREAD,
        "                failure = error\n",
        "                raise\n",
        *IN_PARTS,
    ),
    broken(
        "nodes",
        "a dry-run charge that was not taken is given back",
        SPREAD,
        "replace(charge, cost=taken, up_to=None) for charge, (_, taken, _, _) in asked if taken",
        "replace(charge, up_to=None) for charge, _ in asked",
        *IN_PARTS,
    ),
    broken(
        "nodes",
        "a node that is lost while tokens are given back fails the request",
        SPREAD,
        "            with suppress(StoreUnavailable):\n                self._settle(part, now)",
        "            self._settle(part, now)",
        *IN_PARTS,
    ),
    broken(
        "nodes",
        "slots are charged in the order in which they come",
        SPREAD,
        "[parts[name] for name in sorted(parts)]",
        "[parts[name] for name in parts]",
        *IN_PARTS,
    ),
    broken(
        "nodes",
        "a node that fails keeps what the earlier ones took",
        SPREAD,
        "                self._give_back(part.taken(), now)\n            raise",
        "                pass\n            raise",
        *IN_PARTS,
    ),
)

BREAKERS = ("outage/policies",)

OUTAGES = (
    broken(
        "outage",
        "a failure of a call from before the recovery opens an outage",
        BREAKER,
        "            if ticket != self._changes:\n                return False\n"
        "            if self._next_try is None:",
        "            if self._next_try is None:",
        *BREAKERS,
    ),
    broken(
        "outage",
        "an unreadable bucket met by the retry leaves the breaker open",
        OUTAGE,
        "            self._end(breaker.succeeded(ticket, wrote=False))\n",
        "",
        *BREAKERS,
    ),
    broken(
        "outage",
        "a call that takes nothing ends an outage",
        OUTAGE,
        "any(o.allowed and o.cost for o in decision.outcomes)",
        "any(o.allowed for o in decision.outcomes)",
        *BREAKERS,
    ),
    broken(
        "outage",
        "a settlement ends no outage",
        OUTAGE,
        "lambda _: wrote)",
        "lambda _: False)",
        *BREAKERS,
    ),
    broken(
        "outage",
        "the local policy does not count dry-run limits",
        OUTAGE,
        "self._share(held), self._share(shadow), now)",
        "self._share(held), (), now)",
        *BREAKERS,
    ),
    broken(
        "outage",
        "slots that were held by nobody end an outage",
        OUTAGE,
        'any(charge.kind != "slot" for charge in charges)',
        "True",
        "ext/at_once/test_outage.py",
    ),
    broken(
        "outage",
        "bans are scaled in an outage",
        OUTAGE,
        'if charge.kind == "ban"\n            else',
        "if False\n            else",
        *BREAKERS,
    ),
    broken(
        "outage",
        "slots are known as levels",
        "stores/levels.py",
        'if outcome.kind != "rate":',
        "if False:",
        *BREAKERS,
        "ext/at_once/test_outage.py",
    ),
)

CACHED = ("test_refusals.py",)

CACHE = (
    broken(
        "cache",
        "a refusal by the local policy outlives the outage",
        REFUSALS,
        "            if not decision.degraded:\n",
        "            if True:\n",
        *CACHED,
    ),
    broken(
        "cache",
        "the time of the call prolongs a refusal",
        REFUSALS,
        "clock < self.sent + lasts",
        "clock < self.answered + lasts",
        *CACHED,
    ),
    broken(
        "cache",
        "the time of the call shortens the wait that is told",
        REFUSALS,
        "(clock - self.answered) * SECOND",
        "(clock - self.sent) * SECOND",
        *CACHED,
    ),
    broken(
        "cache",
        "a refusal outlives tokens that returned during its call",
        REFUSALS,
        "if returns != self._returns:",
        "if False:",
        *CACHED,
    ),
    broken(
        "cache",
        "the time at which the bucket is full moves",
        REFUSALS,
        "full_in, wait = _left(told.reset_after, elapsed), told.retry_after",
        "full_in, wait = _left(told.reset_after, 0), told.retry_after",
        *CACHED,
    ),
    broken(
        "cache",
        "ticks of a millisecond and of a second count as microseconds",
        REFUSALS,
        "-(-full_in // limit.tick) * limit.step",
        "full_in * limit.step",
        *CACHED,
    ),
    broken(
        "cache",
        "a refusal tells enough tokens for its cost",
        REFUSALS,
        "max(told.remaining, min(refilled, told.cost - 1))",
        "max(told.remaining, refilled)",
        *CACHED,
    ),
    broken(
        "cache",
        "a settlement that failed forgets nothing",
        REFUSALS,
        "        try:\n            self.store.settle(charges, now)\n        finally:\n"
        "            self._forget(charges, returned=True)",
        "        self.store.settle(charges, now)\n        self._forget(charges, returned=True)",
        *CACHED,
    ),
    broken(
        "cache",
        "a refusal is cached although a ban counts it",
        REFUSALS,
        'if counts and not any(refusal.outcome.kind == "ban" for refusal in refusals):',
        "if False:",
        *CACHED,
    ),
    broken(
        "cache",
        "a refusal for want of a slot is remembered",
        REFUSALS,
        ' or charge.kind == "slot"',
        "",
        *CACHED,
    ),
)

LEASED = ("test_leases.py",)

LEASING = (
    broken(
        "lease",
        "tokens are spent after the lease",
        LEASE,
        "if clock >= self.until or cost > self.tokens:",
        "if cost > self.tokens:",
        *LEASED,
    ),
    broken(
        "lease",
        "more is spent than is held",
        LEASE,
        "if clock >= self.until or cost > self.tokens:",
        "if clock >= self.until or cost > self.tokens + 1:",
        *LEASED,
    ),
    broken(
        "lease",
        "a worker holds more than its share",
        LEASE,
        "share = limit.capacity // (PART * workers)",
        "share = limit.capacity // workers",
        *LEASED,
    ),
    broken(
        "lease",
        "calls at the same time take ahead as if alone",
        LEASE,
        "self.most - self.under_way))\n        asked",
        "self.most))\n        asked",
        *LEASED,
    ),
    broken(
        "lease",
        "a rest is kept although it was sent back",
        LEASE,
        "rest, self.tokens = self.tokens, 0",
        "rest = self.tokens",
        *LEASED,
    ),
    broken(
        "lease",
        "a lost answer takes its room for ever",
        LEASES,
        "            lease.landed(asked)\n",
        "            if decision is not None:\n                lease.landed(asked)\n",
        *LEASED,
    ),
    broken(
        "lease",
        "the lease's time counts from the answer",
        LEASE,
        "        until = sent + self.seconds\n        self.until",
        "        until = at + self.seconds\n        self.until",
        *LEASED,
    ),
    broken(
        "lease",
        "a refused request spends what it took from a lease",
        LEASES,
        "            tokens = row.lease.put_back(row.charge.cost)",
        "            tokens = 0",
        *LEASED,
    ),
    broken(
        "lease",
        "tokens for which a lease has no room are lost",
        LEASES,
        "            if tokens:",
        "            if False:",
        *LEASED,
    ),
    broken(
        "lease",
        "a repeated refusal tells too short a wait",
        LEASE,
        "max(wait - elapsed, self.refused_until - clock)",
        "(wait - elapsed)",
        *LEASED,
    ),
    broken(
        "lease",
        "tokens for which there is no room are lost",
        LEASES,
        "cost=-lease.put_back(-charge.cost)",
        "cost=0 * lease.put_back(-charge.cost)",
        *LEASED,
    ),
    broken(
        "lease",
        "a forked child spends what its parent holds",
        LEASES,
        "        self._leases: LRUCache[str, Lease] = LRUCache(ENTRIES)\n",
        '        self._leases = getattr(self, "_leases", LRUCache(ENTRIES))\n',
        *LEASED,
    ),
    broken(
        "lease",
        "a rest is not given back when the store is closed",
        LEASES,
        "            self.store.settle(back[i : i + AT_A_TIME])\n",
        "            pass\n",
        *LEASED,
    ),
    broken(
        "lease",
        "a reset leaves the leases",
        LEASES,
        "                    del self._leases[key]",
        "                    pass",
        *LEASED,
    ),
    broken(
        "lease",
        "slots and bans are leased",
        LEASES,
        'if not charge.lease or charge.kind != "rate":',
        "if not charge.lease:",
        *LEASED,
    ),
)

SLOTTED = ("ext/at_once",)

REQUESTS = (
    broken(
        "request",
        "the last point alone decides whether tokens are given back",
        "exchange.py",
        "self.returns = self.returns or bill.returns",
        "self.returns = bill.returns",
        "ext/test_settle.py",
    ),
    broken(
        "request",
        "a dry-run charge that was not taken counts as taken",
        "exchange.py",
        "                if outcome.allowed\n",
        "",
        "ext/test_dry_run.py",
    ),
    broken(
        "request",
        "a refusal gives nothing back of what earlier points took",
        "exchange.py",
        "return [charge for charge, _ in self.taken] + slots",
        "return slots",
        "ext/test_order.py",
    ),
    broken(
        "request",
        "a list from on_breach is a 200",
        "answers.py",
        "(str, bytes, dict, list)",
        "(str, bytes, dict)",
        "ext/test_errors.py",
    ),
    broken(
        "request",
        "the last point alone decides whether a request was counted in full",
        "decisions.py",
        "self.degraded or later.degraded",
        "later.degraded",
        "ext/test_outage.py",
    ),
    broken(
        "request",
        "a long secret is cut",
        "keys.py",
        "self._secret if len(self._secret) <= 64 else blake2b(self._secret).digest()",
        "self._secret[:64]",
        "ext/test_keys.py",
    ),
    broken(
        "request",
        "X-Forwarded-For is warned of although ProxyFix is there",
        "first_request.py",
        ' and "werkzeug.proxy_fix.orig" not in environ',
        "",
        "ext/test_keys.py",
    ),
    broken(
        "request",
        "a slot whose answer was lost is not given back",
        "holdings.py",
        " + _taken_out(self.asked, self.asked.copy())",
        "",
        *SLOTTED,
    ),
    broken(
        "request",
        "an inner block frees what the outer one holds",
        "holdings.py",
        'if charge.kind == "slot" and outcome.taken and decision.allowed:',
        'if charge.kind == "slot" and decision.allowed:',
        *SLOTTED,
    ),
    broken(
        "request",
        "a copy of the request gives its slots back",
        "endings.py",
        "if exchange.holdings.context == _current_context():",
        "if True:",
        *SLOTTED,
    ),
    broken(
        "request",
        "a streamed body holds no slot",
        "endings.py",
        "        exchange.streams = exchange.streams and not sent\n",
        "        exchange.streams = False\n",
        *SLOTTED,
    ),
    broken(
        "request",
        "an answer that was lost keeps its slot",
        "bodies.py",
        "                end(True)\n            raise",
        "                end(False)\n            raise",
        *SLOTTED,
    ),
    broken(
        "request",
        "a request that another one hands on ends with it",
        "bodies.py",
        "            environ[_ENDS] = outer\n",
        "            pass\n",
        *SLOTTED,
    ),
    broken(
        "request",
        "the page of an exception holds a slot",
        "bodies.py",
        "isinstance(response.response, (chain, ClosingIterator))",
        "False",
        *SLOTTED,
    ),
    broken(
        "request",
        "a policy is named by its place in the response",
        "headers.py",
        "names.get(parts.ending)",
        "None",
        "ext/test_headers.py",
    ),
    broken(
        "request",
        "a ban that was checked before does not count a later refusal",
        "banning.py",
        'if charge.kind == "ban" and charge.key in self.checked\n',
        "if False\n",
        "ext/bans",
    ),
    broken(
        "request",
        "a ban counts two refusals of one request",
        "banning.py",
        "if key not in self.counted and not self.is_banned]",
        "if not self.is_banned]",
        "ext/bans",
    ),
)

BEHAVIOURS = (*NETWORK, *SEVERAL_NODES, *OUTAGES, *CACHE, *LEASING, *REQUESTS)
