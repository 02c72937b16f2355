"""The jobs of the pipeline: one a file, each with a parser() of its options and a main(argv)."""
