"""The jobs of the pipeline: one a file, each with a main(argv)."""
