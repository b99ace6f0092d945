"""Behaviours that are broken, one at a time, and the tests that notice it.

A tool such as mutmut changes every operator of a module. It cannot do that here in reasonable time:
the tests of these modules start real servers. So each entry is a mistake that would hurt users.
"""

from __future__ import annotations

from tests.mutation.behaviours.layers import CACHE, LEASING, OUTAGES
from tests.mutation.behaviours.network import NETWORK, SEVERAL_NODES
from tests.mutation.behaviours.requests import REQUESTS

BEHAVIOURS = (*NETWORK, *SEVERAL_NODES, *OUTAGES, *CACHE, *LEASING, *REQUESTS)
