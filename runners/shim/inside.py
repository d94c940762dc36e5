"""What the interpreter of the guard executes inside of bubblewrap: a file, since a folder takes twice as long to start.

Arguments: the descriptor of what it needs to know (`isolation.py`).
"""

import sys

sys.path.insert(0, sys.argv[0].rpartition("/")[0])  # left out with -I
import isolation

isolation.inside(int(sys.argv[1]))
