#!/usr/bin/env python3
"""The report in a real browser: its numbers against the library's, its controls, its silence on the network.

    ATTN_COMMAND=build/default/attn tests/report/browser/run.py [-k NAME]
"""

import sys
import unittest

import chromium

if not chromium.find():
    print("skipped: no chromium here (Debian: apt-get install chromium)")
    sys.exit(77)
from figures_case import *  # noqa: E402
from keyboard_case import *  # noqa: E402
from labs_case import *  # noqa: E402
from live_case import *  # noqa: E402
from live_module_case import *  # noqa: E402
from live_own_case import *  # noqa: E402
from live_state_case import *  # noqa: E402
from model_page_case import *  # noqa: E402
from overview_case import *  # noqa: E402
from packed_case import *  # noqa: E402
from sources_case import *  # noqa: E402
from steps_case import *  # noqa: E402

unittest.main(verbosity=2)
