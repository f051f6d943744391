"""Another host: it starts a server and leaves its own input and output to it: python3 -I -S host.py COMMAND [ARGUMENT…]"""

import subprocess
import sys

sys.exit(subprocess.run(sys.argv[1:]).returncode)
