"""The jobs of the pipeline: one per file, each with a parser() for its options and a main(argv)."""
