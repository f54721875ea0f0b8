"""A Spark session on one machine, or one line that says what is missing for it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

from pyspark.sql import SparkSession

from onlad.errors import OnladError

PROVIDER = "spark.sql.streaming.stateStore.providerClass"
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
JAVA = 17  # the oldest that Spark 4 runs on
CHANGES = "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"
FILES = "spark.sql.streaming.checkpointFileManagerClass"
CHECKPOINTS = "org.apache.spark.sql.execution.streaming.checkpointing"


def session(cores: int | None = None, **settings: str) -> SparkSession:
    """Return a Spark session on this machine that `watch` can use.

    A cluster has its own; it needs ``spark.conf.set(spark.PROVIDER, spark.ROCKSDB)``, and onlad
    installed where the executors run.

    Parameters
    ----------
    cores
        Cores to use, by default all; also the partitions of a keyed stream.
    settings
        More of Spark's, with ``__`` for a dot.

    Raises
    ------
    OnladError
        There is no Java runtime, or it is too old; the message says what to install.
    """
    need_java()
    cores = cores or os.cpu_count() or 1
    # The streaming runner takes `python3` of the PATH else, which may lack onlad.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master(f"local[{cores}]").appName("onlad")
    own = {
        PROVIDER: ROCKSDB,
        # Spark's default starts the program `readlink` dozens of times in each micro-batch.
        FILES: f"{CHECKPOINTS}.FileSystemBasedCheckpointFileManager",
        # A commit writes what changed, not files of RocksDB.
        CHANGES: "true",
        # Java does little here. Compiling it to the last would take more time than it saves, and so
        # would collecting garbage in threads of its own.
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.sql.shuffle.partitions": str(cores),
        # With `expire`, Spark would else run empty micro-batches without end.
        "spark.sql.streaming.noDataMicroBatches.enabled": "false",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
    }
    for name, value in (own | {k.replace("__", "."): v for k, v in settings.items()}).items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def need_java() -> None:
    """Raise `OnladError`, with what to install, if there is no Java that Spark runs on."""
    home = os.environ.get("JAVA_HOME")
    java = os.path.join(home, "bin", "java") if home else shutil.which("java")
    how = f"install one, for example with `apt-get install openjdk-{JAVA}-jre-headless`"
    if java is None or not os.path.exists(java):
        raise OnladError(f"Spark needs Java {JAVA} or newer, and there is none: {how}")
    told = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    version = told.partition('"')[2].partition(".")[0]
    if version.isdigit() and int(version) < JAVA:
        raise OnladError(f"Spark needs Java {JAVA} or newer, and {java} is {version}: {how}")
