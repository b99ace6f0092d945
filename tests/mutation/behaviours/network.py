"""Behaviours of the connections, and of charges over several nodes."""

from __future__ import annotations

from tests.mutation.behaviours.behaviour import broken

REDIS = "stores/redis/"
CLUSTER, DIALING, MAKER = f"{REDIS}cluster.py", f"{REDIS}dialing.py", f"{REDIS}maker.py"
POOL, SPREAD, WIRE = f"{REDIS}pool.py", f"{REDIS}spread.py", f"{REDIS}wire.py"


ON_CLUSTER = "outage/cluster/test_changes.py::"
ON_TLS = "outage/links/test_tls.py::"

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
        f"{ON_TLS}test_a_fork_leaves_a_connection_over_tls_to_the_parent",
    ),
    broken(
        "network",
        "a forked child says goodbye on its parent's connection",
        WIRE,
        "        self._sock.close()\n",
        "        if isinstance(self._sock, ssl.SSLSocket):\n"
        "            self._sock.settimeout(1)\n            self._sock.unwrap()\n"
        "        self._sock.close()\n",
        f"{ON_TLS}test_a_fork_leaves_a_connection_over_tls_to_the_parent",
    ),
    broken(
        "network",
        "connecting over TLS needs the right to PING",
        DIALING,
        '{command[0]} with OK")\n',
        '{command[0]} with OK")\n    if isinstance(options, redis.SSLConnection):\n'
        '        wire.call(packed("PING"), deadline)\n',
        "outage/links/test_rights.py::test_the_documented_rights_are_enough_over_tls",
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
        "outage/links/test_connections.py::test_a_connection_that_is_not_quiet_is_not_used",
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
