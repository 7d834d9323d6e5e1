"""Start-up code of each Python whose PYTHONPATH has this folder: in Spark sessions and servers that Dredge starts here.

Tasks are forked by `lsm_core.spark.worker_daemon`. For calls to a data source Spark uses its own parent, whatever
`spark.python.daemon.module` is, so this code preloads the modules of that parent's workers. In any other
process this code only runs the `sitecustomize` module that this file hides, if there is one.
"""

import os
import sys

_own = sys.modules.pop(__name__, None)
sys.path[:] = [place for place in sys.path if place != os.path.dirname(__file__)]
try:
    __import__(__name__)
except ModuleNotFoundError as error:
    if error.name != __name__:
        raise
finally:
    if _own is not None:
        sys.modules.setdefault(__name__, _own)  # whoever imports this looks for it afterwards

if sys.orig_argv[1:3] == ["-m", "pyspark.daemon"] and len(sys.orig_argv) > 3:
    from lsm_core.spark.worker_daemon import preload

    preload(sys.orig_argv[3])
