"""Results of a verification in detail: tests, compiler messages, the stage that failed."""
