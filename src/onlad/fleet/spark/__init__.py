"""Keyed streams on Apache Spark: one monitor per key, in Spark's own state store."""

try:
    import pandas
    import pyarrow
    import pyspark
except ImportError as error:
    raise ImportError("onlad.fleet.spark needs Spark: pip install 'onlad[fleet]'") from error

from onlad.fleet.spark.fit import fit, measure
from onlad.fleet.spark.session import CHANGES, PROVIDER, ROCKSDB, session
from onlad.fleet.spark.watch import models, watch

__all__ = ["CHANGES", "PROVIDER", "ROCKSDB", "fit", "measure", "models", "session", "watch"]

del pandas, pyarrow, pyspark  # they were tried, for one clear error
