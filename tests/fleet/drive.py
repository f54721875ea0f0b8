"""A driver that is there to be killed: watch the files of a folder, from its checkpoint on."""

import sys

from fleet_data import FEATURES, QUICK, small_monitor

from onlad.fleet import spark as fleet

SCHEMA = "device string, time long, flow double, power double, heat double"


def main(folder):
    spark = fleet.session(2, **QUICK)
    source = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
    rows = source.parquet(f"{folder}/in")
    said = fleet.watch(rows, "device", FEATURES, "time", small_monitor())
    writer = said.writeStream.format("parquet").option("checkpointLocation", f"{folder}/checkpoint")
    writer.trigger(availableNow=True).start(f"{folder}/said").awaitTermination()


if __name__ == "__main__":
    main(sys.argv[1])
