from experiments.benchmark.run import main

main()
